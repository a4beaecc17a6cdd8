const html = require("html");
const db = require("site-db");
const { page, summary, body } = require("./lib/ops.js");

const UPSERT = `
  INSERT INTO stories (id, title, url, source, department, author, posted_at, comments, topic, page)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (id) DO UPDATE SET title = excluded.title, url = excluded.url, source = excluded.source,
    department = excluded.department, author = excluded.author, posted_at = excluded.posted_at,
    comments = excluded.comments, topic = excluded.topic, page = excluded.page`;

const STORY = {
  id: "@data-fhid",
  title: ".story-title > a",
  href: ".story-title > a@href",
  source: ".story-sourcelnk@href",
  department: ".dept-text",
  byline: ".story-byline",
  date: "time",
  postedAt: "time@datetime",
  comments: ".comment-bubble",
  topic: ".topic img@title",
};

// "Posted by NAME on DATE from the X dept.": the name is a link for those who have an account
const author = ({ byline, date }) => byline.slice(0, byline.indexOf(date)).replace("Posted by", "").trim();
const department = (text) => text && text.replace(/^from the (.*) dept\.$/, "$1");

// How many pages the pager knows of.
const pageCount = (doc) =>
  1 + Math.max(0, ...doc.css(".paginate a").map((link) => Number(/page=(\d+)/.exec(link.attr("href"))?.[1] ?? 0)));

module.exports = (ctx) => {
  const { baseURL, url, page: number, fanOut } = ctx.input;
  const doc = html.parse(body(ctx));
  const stories = doc.extract("article.fhitem-story", STORY);
  if (stories.length === 0) throw new Error(`no stories at ${url}`);

  for (const story of stories) {
    db.exec(
      UPSERT,
      ...[Number(story.id), story.title, html.resolve(url, story.href), story.source, department(story.department)],
      ...[author(story), story.postedAt, story.comments && Number(story.comments), story.topic, number],
    );
  }

  if (fanOut) {
    const extracts = [ctx.op.id];
    const count = Math.min(fanOut, pageCount(doc));
    for (let other = 1; other < count; other++) extracts.push(page(ctx, baseURL, other));
    summary(ctx, extracts);
  }
  return { stories: stories.length };
};
