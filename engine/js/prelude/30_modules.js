// require(): author's modules below the root, and the host's own.
const $sources = { __proto__: null };
const $prefix = "(function (exports, require, module, __filename, __dirname) {";

// The host sends a module's text once to an isolate.
const $source = (function (found) {
  if (found.source !== undefined) $sources[found.number] = found.source;
  else if ($sources[found.number] === undefined) $sources[found.number] = $host("source", $String(found.number));
  return $sources[found.number];
});

const $compile = (function (found, tail) {
  return $eval($prefix + $source(found) + "\n" + (tail || "") + "})\n//# sourceURL=" + found.name);
});

const $load = (function (found, tail) {
  const { modules } = $session;
  const known = modules[found.name];
  if (known !== undefined) return known.exports;
  const module = { exports: {}, id: found.name, filename: found.name, loaded: false };
  modules[found.name] = module;
  try {
    if (found.json) module.exports = $JSON.parse($source(found));
    else {
      const folder = found.name.includes("/") ? found.name.slice(0, found.name.lastIndexOf("/")) : ".";
      const run = $compile(found, tail);
      $apply(run, module.exports, [module.exports, $requireFrom(found.name), module, found.name, folder]);
    }
  } catch (error) {
    delete modules[found.name];
    throw error;
  }
  module.loaded = true;
  return module.exports;
});

const $requireFrom = (function (from) {
  return function require(name) {
    if (typeof name !== "string" || name === "") throw new $TypeError("require expects a module name");
    if ($natives[name] !== undefined) {
      const { modules } = $session;
      if (modules["native:" + name] === undefined) modules["native:" + name] = { exports: $natives[name]() };
      return modules["native:" + name].exports;
    }
    return $load($ask("require", [name, from]));
  };
});

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
