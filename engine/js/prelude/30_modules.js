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

// What parts are made of, for modes that are added to these.
const $params = (values) => $part("sql").$params(values);
const $rows = (answer) => $part("sql").$rows(answer);
const $sql = (text) => $part("sql").$sql(text);
const $siteDb = () => $part("sql").siteDb();
const $declarations = (recorder) => $part("modes").declare(recorder);

const $natives = {
  __proto__: null,
  "site-db": $siteDb,
  "scraper-db": () => $part("sql").scraperDb(),
  crypto: () => $part("crypto"),
  html: () => $html(),
};
const $html = () => $part("html")();
