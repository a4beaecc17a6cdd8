"use strict";

var ops = require("../scripts/lib/ops.js");

var PREFIX = { type: "string", default: "demo", help: "What the names of the items begin with" };
var MULTIPLIER = { type: "float", default: 2, help: "What an item's number is multiplied by" };

__verb__("seed", {
  short: "Make items, each in an op of its own, and sum them up",
  fields: {
    count: { type: "int", default: 3, help: "How many items" },
    multiplier: MULTIPLIER,
    prefix: PREFIX,
    refuse: { type: "intList", help: "Numbers of items that fail, to see what the summary makes of it" },
  },
});

function seed(ctx) {
  var values = ctx.values;
  if (values.count < 1) throw new Error("count must be at least 1");
  var input = {
    count: values.count,
    multiplier: values.multiplier,
    prefix: values.prefix,
    refuse: values.refuse || [],
  };
  ctx.emit({ id: "seed", kind: "js", queue: "control", metadata: { script: "seed.js" }, input: input });
  // the summary comes from the seed: it is the op to wait for all the same
  return { data: input, targetOpID: ops.SUMMARY, workflowName: "js-demo " + input.prefix };
}

__verb__("item", {
  short: "Make one item",
  fields: {
    number: { type: "int", default: 1, help: "The item's number" },
    multiplier: MULTIPLIER,
    prefix: PREFIX,
  },
});

function item(ctx) {
  var id = ops.item(ctx, ctx.values.prefix, ctx.values.number, ctx.values.multiplier, false);
  return { data: { item: id }, targetOpID: id };
}

__verb__("summary", {
  short: "Sum up the items that are in the database",
  fields: { prefix: PREFIX },
});

function summary(ctx) {
  var id = ops.summary(ctx, ctx.values.prefix, []);
  return { data: { summary: id }, targetOpID: id };
}
