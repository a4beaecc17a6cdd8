const html = require("html");
const ops = require("./lib/ops.js");

module.exports = function (ctx) {
  const doc = html.parse(ops.body(ctx));
  const links = doc.extract("article.book h3 a", { href: "@href", id: "@data-id" });
  for (const link of links) {
    const item = ops.itemPage(html.resolve(ctx.input.url, link.href), link.id);
    ctx.emit(item.extract(ctx.emit(item.fetch)));
  }
  const next = doc.first("li.next a");
  const wanted = ctx.input.maxPages === 0 || ctx.input.page < ctx.input.maxPages;
  if (next && wanted) {
    const page = ops.listPage(ctx.input.baseURL, ctx.input.page + 1, ctx.input.maxPages);
    ctx.emit(page.extract(ctx.emit(page.fetch)));
  }
  ctx.writeRecord("pages", String(ctx.input.page), { url: ctx.input.url, books: links.length });
  return { books: links.length };
};
