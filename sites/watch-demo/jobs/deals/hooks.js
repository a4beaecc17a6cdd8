const percent = require("percent");

// Every item gets a field that the page does not have.
function after_extract(items, ctx) {
  ctx.shared.seen = items.length;
  return items.map((item) => ({ ...item, fields: { ...item.fields, percent: percent(item.fields.off) } }));
}

// A deal of less than 20 % is none.
function filter_item(item, ctx) {
  return Number(item.fields.percent) >= 20 ? item : null;
}
