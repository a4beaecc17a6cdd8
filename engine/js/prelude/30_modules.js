// require(): author's modules below the root, and the host's own.
const $cache = { __proto__: null };
const $prefix = "(function (exports, require, module, __filename, __dirname) {";

function $compile(found, tail) {
  return $eval($prefix + found.source + "\n" + (tail || "") + "})\n//# sourceURL=" + found.name);
}

function $load(found, tail) {
  const known = $cache[found.name];
  if (known !== undefined) return known.exports;
  const module = { exports: {}, id: found.name, filename: found.name, loaded: false };
  $cache[found.name] = module;
  try {
    if (found.json) module.exports = $JSON.parse(found.source);
    else {
      const folder = found.name.includes("/") ? found.name.slice(0, found.name.lastIndexOf("/")) : ".";
      const run = $compile(found, tail);
      $apply(run, module.exports, [module.exports, $requireFrom(found.name), module, found.name, folder]);
    }
  } catch (error) {
    delete $cache[found.name];
    throw error;
  }
  module.loaded = true;
  return module.exports;
}

function $requireFrom(from) {
  return function require(name) {
    if (typeof name !== "string" || name === "") throw new $TypeError("require expects a module name");
    if ($natives[name] !== undefined) {
      if ($cache["native:" + name] === undefined) $cache["native:" + name] = { exports: $natives[name]() };
      return $cache["native:" + name].exports;
    }
    return $load($ask("require", [name, from]));
  };
}

function $params(values) {
  const list = values.length === 1 && $isArray(values[0]) ? values[0] : values;
  const out = [];
  for (const value of list) {
    if (value === null || value === undefined) $push(out, null);
    else if (typeof value === "bigint") $push(out, { $int: $String(value) });
    else if (typeof value === "number" || typeof value === "string" || typeof value === "boolean") $push(out, value);
    else if ($asBytes(value) !== null) $push(out, { $bytes: $bytesToText($asBytes(value)) });
    else if (value instanceof Date) $push(out, value.toISOString());
    else $push(out, $json(value, "parameter"));
  }
  return out;
}

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

const $siteDb = () => ({
  query: (sql, ...values) => $rows($ask("site.query", [$sql(sql), $params(values)])),
  exec: (sql, ...values) => $ask("site.exec", [$sql(sql), $params(values)]),
  lastInsertId: () => $ask("site.last", null),
  options: (wanted) => void $ask("site.options", wanted || {}),
});

const $natives = {
  __proto__: null,
  "site-db": $siteDb,
  "scraper-db": () => ({
    query: (sql, ...values) => $rows($ask("engine.query", [$sql(sql), $params(values)])),
    exec() {
      throw new $Error("scraper-db is read-only: only query() works");
    },
  }),
  crypto: () => $crypto,
  html: () => $html(),
};
