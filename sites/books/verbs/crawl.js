__verb__("crawl", {
  short: "Crawl the catalogue: every list page, every book",
  fields: {
    base_url: { type: "string", help: "Where the catalogue is", required: true },
    max_pages: { type: "int", default: 0, help: "Stop after this many list pages (0 = all)" },
  },
});

function crawl(ctx) {
  const page = require("../scripts/lib/ops.js").listPage(ctx.values.base_url, 1, ctx.values.max_pages || 0);
  const fetched = ctx.emit(page.fetch);
  const extracted = ctx.emit(page.extract(fetched));
  ctx.setTargetOpID(extracted);
  return { data: { firstPage: page.fetch.input.request.url } };
}
