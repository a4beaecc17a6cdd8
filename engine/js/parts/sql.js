// require("site-db") and require("scraper-db"): values and rows as they cross the bridge.
"use strict";
(function ({ $ask, $push, $json, $String, $Error, $TypeError, $isArray, $asBytes, $bytesToText, $textToBytes, $session }) {
  const $params = (function (values) {
    const list = values.length === 1 && $isArray(values[0]) ? values[0] : values;
    const out = [];
    for (let i = 0; i < list.length; i++) {
      const value = list[i];
      if (value === null || value === undefined) $push(out, null);
      else if (typeof value === "bigint") $push(out, { $int: $String(value) });
      else if (typeof value === "number" || typeof value === "string" || typeof value === "boolean") $push(out, value);
      else if ($asBytes(value) !== null) $push(out, { $bytes: $bytesToText($asBytes(value)) });
      else if (value instanceof Date) $push(out, value.toISOString());
      else $push(out, $json(value, "parameter"));
    }
    return out;
  });

  function $rows(answer) {
    const columns = answer.c;
    return answer.r.map((row) => {
      const shown = {};
      for (let i = 0; i < columns.length; i++) {
        const value = row[i];
        shown[columns[i]] = value !== null && typeof value === "object" ? $textToBytes(value.$bytes) : value;
      }
      return shown;
    });
  }

  function $sql(text) {
    if (typeof text !== "string") throw new $TypeError("the SQL must be a string");
    return text;
  }

  // a statement's text goes over once; later calls name it by its number
  const run = (function (call, sql, values) {
    const { statements } = $session;
    const known = statements[$sql(sql)];
    if (known !== undefined) return $ask(call, [null, $params(values), known]);
    const number = ++$session.count;
    const answer = $ask(call, [sql, $params(values), number]);
    statements[sql] = number;
    return answer;
  });

  const siteDb = () => ({
    query: (sql, ...values) => $rows(run("site.query", sql, values)),
    exec: (sql, ...values) => run("site.exec", sql, values),
    lastInsertId: () => $ask("site.last", null),
    options: (wanted) => void $ask("site.options", wanted || {}),
  });

  const scraperDb = () => ({
    query: (sql, ...values) => $rows(run("engine.query", sql, values)),
    exec() {
      throw new $Error("scraper-db is read-only: only query() works");
    },
  });

  return { siteDb, scraperDb, $params, $rows, $sql };
});
