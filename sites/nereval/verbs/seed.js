"use strict";

doc("Crawls the property list of a town page by page, and every property on it once.");

__verb__("seed", {
  short: "Crawl the properties of a town",
  fields: {
    base_url: { type: "string", default: "https://data.nereval.com", help: "Where the assessor's database is" },
    town: { type: "string", default: "Providence", help: "The town whose properties to crawl" },
    max_pages: { type: "int", default: 1, help: "Stop after this many list pages" },
  },
});

function seed(ctx) {
  var input = {
    baseURL: ctx.values.base_url.replace(/\/+$/, ""),
    town: ctx.values.town.trim(),
    maxPages: ctx.values.max_pages,
  };
  if (input.town === "") throw new Error("town must not be blank");
  if (input.maxPages < 1) throw new Error("max-pages must be at least 1");
  ctx.setWorkflowName("nereval " + input.town);
  ctx.setTargetOpID(
    ctx.emit({ id: "seed", kind: "js", queue: "seed", metadata: { script: "seed.js" }, input: input })
  );
  return { data: input };
}
