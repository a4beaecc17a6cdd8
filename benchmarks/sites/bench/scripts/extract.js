const html = require("html");
const db = require("site-db");

// one statement for all items of a page
const INSERT =
  "INSERT INTO items (id, page, title, price, url) " +
  "SELECT value->>'id', ?, value->>'title', value->>'price', value->>'url' FROM json_each(?) WHERE true " +
  "ON CONFLICT (id) DO UPDATE SET title = excluded.title, price = excluded.price, url = excluded.url";

module.exports = function (ctx) {
  const body = ctx.dep(ctx.input.fetched).artifacts.find((one) => one.kind === "http-response-body").bodyText;
  const items = html.parse(body).extract("article.item", {
    id: "@data-id",
    title: "h3 a",
    url: "h3 a@href",
    price: ".price",
  });
  for (const item of items) {
    item.url = html.resolve(ctx.input.url, item.url);
    item.price = Number(item.price.replace("£", ""));
  }
  db.exec(INSERT, ctx.input.page, JSON.stringify(items));
  return { items: items.length };
};
