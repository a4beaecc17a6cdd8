const { firstPage } = require("./lib/ops.js");

module.exports = (ctx) => ({ extract: firstPage(ctx, ctx.input.baseURL, ctx.input.maxPages) });
