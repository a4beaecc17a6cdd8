const html = require("html");
const db = require("site-db");

const UPSERT = `
  INSERT INTO items (id, title, price, url) VALUES (?, ?, ?, ?)
  ON CONFLICT (id) DO UPDATE SET title = excluded.title, price = excluded.price, url = excluded.url`;

/** @param {ScriptContext} ctx */
module.exports = function (ctx) {
  const fetched = ctx.dep(ctx.input.fetchOpID);
  if (fetched === null) throw new Error(`no result of ${ctx.input.fetchOpID}`);
  const page = html.parse(fetched.artifacts.filter((one) => one.kind === "http-response-body")[0].bodyText);

  const items = page.extract("li.item", { id: "@data-id", title: "h2", price: ".price", href: "a@href" });
  for (const { id, title, price, href } of items) {
    const url = href === null ? null : html.resolve(ctx.input.url, href);
    db.exec(UPSERT, id, title, price === null ? null : Number(price.replace(/[^\d.]/g, "")), url);
  }
  ctx.writeRecord("lists", ctx.input.url, { items: items.length });
  return { items: items.length };
};
