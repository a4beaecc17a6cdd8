const html = require("html");
const db = require("site-db");

const INSERT =
  "INSERT INTO items (id, page, title, price, url) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET " +
  "title = excluded.title, price = excluded.price, url = excluded.url";

module.exports = function (ctx) {
  const body = ctx.dep(ctx.input.fetched).artifacts.find((one) => one.kind === "http-response-body").bodyText;
  const items = html.parse(body).extract("article.item", {
    id: "@data-id",
    title: "h3 a",
    url: "h3 a@href",
    price: ".price",
  });
  for (const item of items) {
    const url = html.resolve(ctx.input.url, item.url);
    if (ctx.input.records) {
      ctx.writeRecord("items", item.id, { page: ctx.input.page, title: item.title, price: item.price, url: url });
    } else {
      db.exec(INSERT, item.id, ctx.input.page, item.title, Number(item.price.replace("£", "")), url);
    }
  }
  return { items: items.length };
};
