"use strict";

var db = require("site-db");
var score = require("./lib/score.js");

module.exports = function (ctx) {
  var input = ctx.input;
  if (input.refused) {
    return {
      error: {
        code: "item_refused",
        message: "item " + input.number + " is refused",
        retryable: false,
        details: { number: input.number },
      },
    };
  }
  var item = score.describe(input.prefix, input.number, input.multiplier);
  db.exec(
    "INSERT INTO items (prefix, number, name, word, score, workflow_id) VALUES (?, ?, ?, ?, ?, ?)" +
      " ON CONFLICT (prefix, number) DO UPDATE SET name = excluded.name, word = excluded.word," +
      " score = excluded.score, workflow_id = excluded.workflow_id, writes = items.writes + 1",
    [input.prefix, input.number, item.name, item.word, item.score, ctx.workflow.id]
  );
  ctx.writeRecord("items", item.name, item);
  return { data: item };
};
