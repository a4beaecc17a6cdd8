"use strict";

var ops = require("./lib/ops.js");

module.exports = function (ctx) {
  var input = ctx.input;
  var items = [];
  for (var number = 1; number <= input.count; number++) {
    items.push(ops.item(ctx, input.prefix, number, input.multiplier, input.refuse.indexOf(number) >= 0));
  }
  ops.summary(ctx, input.prefix, items);
  ctx.log("emitted", items.length, "items");
  return { data: { items: items } };
};
