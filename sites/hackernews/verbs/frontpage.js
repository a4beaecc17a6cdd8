const BASE_URL = { type: "string", default: "https://news.ycombinator.com", help: "Where the board is" };

__verb__("seed", {
  short: "Crawl the front page and what its More link leads to",
  fields: {
    "base-url": BASE_URL,
    "max-pages": { type: "int", default: 1, help: "Stop after this many pages" },
  },
});

function seed(ctx) {
  const input = { baseURL: ctx.values["base-url"], maxPages: ctx.values["max-pages"] };
  if (input.maxPages < 1) throw new Error("max-pages must be at least 1");
  const op = ctx.emit({ id: "seed", kind: "js", queue: "seed", metadata: { script: "seed.js" }, input });
  ctx.setTargetOpID(op);
  return { data: input };
}

__verb__("extractFrontpage", {
  name: "extract-frontpage",
  short: "Fetch and extract the front page alone",
  fields: { "base-url": BASE_URL },
});

function extractFrontpage(ctx) {
  const { firstPage } = require("../scripts/lib/ops.js");
  ctx.setTargetOpID(firstPage(ctx, ctx.values["base-url"], 1));
}
