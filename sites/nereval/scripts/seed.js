"use strict";

var ops = require("./lib/ops.js");

module.exports = function (ctx) {
  var crawl = ctx.input;
  var url = crawl.baseURL + "/PropertyList.aspx?town=" + encodeURIComponent(crawl.town) + "&Search=";
  return { data: { extract: ops.listPage(ctx, crawl, 1, { method: "GET", url: url }) } };
};
