const html = require("html");
const db = require("site-db");
const ops = require("./lib/ops.js");

module.exports = function (ctx) {
  const doc = html.parse(ops.body(ctx));
  const book = doc.extract("article.product", {
    title: "h1",
    category: ".breadcrumb .category",
    price: ".price",
    stock: ".stock@data-count",
    rating: ".rating@data-stars",
  })[0];
  db.exec(
    `INSERT INTO books (id, title, category, price, stock, rating, url) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (id) DO UPDATE SET title = excluded.title, category = excluded.category, price = excluded.price,
     stock = excluded.stock, rating = excluded.rating, url = excluded.url`,
    ctx.input.id,
    book.title,
    book.category,
    Number(book.price.replace("£", "")),
    Number(book.stock),
    Number(book.rating),
    ctx.input.url,
  );
  db.exec("UPDATE visits SET n = n + 1 WHERE name = 'item'");
  db.exec("INSERT INTO item_visits (id, n) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET n = item_visits.n + 1", ctx.input.id);
  return book;
};
