"use strict";

exports.SUMMARY = "summary";

exports.item = function (ctx, prefix, number, multiplier, refused) {
  return ctx.emit({
    id: "item:" + number,
    kind: "js",
    queue: "items",
    dedupKey: prefix + "/" + number,
    metadata: { script: "item.js", number: number },
    input: { prefix: prefix, number: number, multiplier: multiplier, refused: refused },
  });
};

// Waits for all items, well or not.
exports.summary = function (ctx, prefix, items) {
  return ctx.emit({
    id: exports.SUMMARY,
    kind: "js",
    queue: "control",
    metadata: { script: "summary.js" },
    input: { prefix: prefix, items: items },
    dependsOn: items.map(function (id) {
      return { opID: id, required: false };
    }),
  });
};
