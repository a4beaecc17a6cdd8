"use strict";

var db = require("site-db");

// What the items this op waited for say: the names of those that are there, the codes of those that failed.
function outcomes(ctx) {
  var found = { made: [], failed: {} };
  ctx.input.items.forEach(function (id) {
    var dep = ctx.dep(id);
    if (dep === null) found.failed[id] = "no_result";
    else if (dep.error && dep.error.code) found.failed[id] = dep.error.code;
    else found.made.push(dep.data.name);
  });
  return found;
}

module.exports = function (ctx) {
  var prefix = ctx.input.prefix;
  var found = outcomes(ctx);
  var words = db.query(
    "SELECT word, count(*) AS items, sum(score) AS score FROM items WHERE prefix = ? GROUP BY word ORDER BY word",
    prefix
  );
  if (words.length === 0) {
    return { error: { code: "no_items", message: "there are no items of " + prefix, retryable: false } };
  }
  db.exec("DELETE FROM summaries WHERE prefix = ?", prefix);
  words.forEach(function (row) {
    db.exec("INSERT INTO summaries (prefix, word, items, score) VALUES (?, ?, ?, ?)", prefix, row.word, row.items, row.score);
  });
  ctx.writeArtifact({
    id: ctx.op.id + ":report",
    name: "report.json",
    kind: "report",
    contentType: "application/json",
    metadata: { prefix: prefix },
    body: JSON.stringify(words),
  });
  return { data: { prefix: prefix, made: found.made, failed: found.failed, words: words } };
};
