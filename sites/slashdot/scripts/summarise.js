const db = require("site-db");

module.exports = (ctx) => {
  const missing = ctx.input.extracts.filter((id) => !ctx.dep(id)?.data);

  db.exec("DELETE FROM topics");
  db.exec(
    "INSERT INTO topics (topic, stories, comments) SELECT topic, count(*), coalesce(sum(comments), 0) FROM stories GROUP BY topic",
  );
  const topics = db.query("SELECT topic, stories, comments FROM topics ORDER BY topic");
  for (const { topic, ...counts } of topics) ctx.writeRecord("topics", topic, counts);
  return { topics: topics.length, missing };
};
