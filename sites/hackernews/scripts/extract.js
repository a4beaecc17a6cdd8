const html = require("html");
const db = require("site-db");
const { page, body } = require("./lib/ops.js");

const UPSERT = `
  INSERT INTO stories (id, rank, title, url, site, points, author, comments, page) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (id) DO UPDATE SET rank = excluded.rank, title = excluded.title, url = excluded.url,
    site = excluded.site, points = excluded.points, author = excluded.author, comments = excluded.comments,
    page = excluded.page`;

// A story is two rows that follow each other: the title's and the subtext's.
const TITLE = { id: "@id", rank: ".rank", title: ".titleline > a", href: ".titleline > a@href", site: ".sitestr" };
const SUBTEXT = { points: ".score", author: ".hnuser", comments: ".subline > a:last-of-type" };

const leading = (text) => (text === null ? null : parseInt(text, 10) || 0); // "discuss" is no comment yet

module.exports = (ctx) => {
  const { url, page: number, maxPages } = ctx.input;
  const doc = html.parse(body(ctx));
  const titles = doc.extract("tr.athing", TITLE);
  const subtexts = doc.extract("tr.athing + tr", SUBTEXT);
  if (titles.length === 0) throw new Error(`no stories at ${url}`);

  titles.forEach((story, i) => {
    const { points, author, comments } = subtexts[i];
    db.exec(
      UPSERT,
      ...[Number(story.id), leading(story.rank), story.title, html.resolve(url, story.href), story.site],
      ...[leading(points), author, leading(comments), number],
    );
  });

  const more = doc.first("a.morelink");
  const next = more && number < maxPages ? html.resolve(url, more.attr("href")) : null;
  if (next) page(ctx, next, number + 1, maxPages);
  ctx.writeRecord("pages", String(number), { url, stories: titles.length, next });
  return { stories: titles.length };
};
