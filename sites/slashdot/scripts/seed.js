const { page } = require("./lib/ops.js");

module.exports = (ctx) => ({ extract: page(ctx, ctx.input.baseURL, 0, { fanOut: ctx.input.maxPages }) });
