// Modes of execution beside those of the engine: what authors' tools ask of a file, and what a test sees.
function $more(job, found) {
  const offered = {};
  $declarations(null);
  $hide(globalThis, "__offer__", (name, value) => void (typeof value === "function" && (offered[name] = value)));
  const tail = job.names.map((name) => `;__offer__("${name}", typeof ${name} === "undefined" ? undefined : ${name});`);
  const exported = $load(found, tail.join(""));
  if (exported !== null && typeof exported === "object")
    for (const name of $keys(exported)) if (typeof exported[name] === "function") offered[name] ??= exported[name];
  if (job.mode === "offered") return $keys(offered);
  return $apply(offered[job.function], undefined, [$testContext()]);
}

function $testContext() {
  const db = $siteDb();
  const records = "SELECT key, data FROM scraper_records WHERE collection = ? ORDER BY key";
  return {
    run: (verb, flags, options) => $ask("test.run", [verb, flags || {}, options || {}]),
    records: (collection) =>
      db.query(records, collection).map((row) => ({ key: row.key, data: $JSON.parse(row.data) })),
    query: db.query,
    exec: db.exec,
    fixture: (name) => $ask("test.fixture", $String(name)),
    log: $logger("info"),
    equal(actual, expected, message) {
      const place = $firstDifference(actual, expected, "");
      if (place === null) return;
      const text = `${place.path || "the value"} is ${$spelled(place.actual)}, expected ${$spelled(place.expected)}`;
      $disagree(text, message);
    },
    ok(value, message) {
      if (!value) $disagree(`${$spelled(value)} is not true`, message);
    },
    throws(call, message) {
      try {
        call();
      } catch (error) {
        return error;
      }
      $disagree("nothing was thrown", message);
    },
  };
}

function $disagree(text, message) {
  const error = new $Error(message === undefined ? text : `${message}: ${text}`);
  error.name = "AssertionError";
  throw error;
}

function $spelled(value) {
  if (value === undefined) return "missing";
  if (typeof value === "function") return "a function";
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "number") return $String(value);
  const text = $JSON.stringify(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

// The first place where two values differ, or null.
function $firstDifference(actual, expected, path) {
  const differs = { path, actual, expected };
  if (Object.is(actual, expected)) return null;
  if (actual === null || expected === null || typeof actual !== "object" || typeof expected !== "object") return differs;
  const bytes = $asBytes(actual);
  if (bytes !== null) return $asBytes(expected) !== null && $bytesToText(bytes) === $bytesToText($asBytes(expected)) ? null : differs;
  if (actual instanceof Date && expected instanceof Date) return +actual === +expected ? null : differs;
  if ($isArray(actual) !== $isArray(expected)) return differs;
  for (const name of new $Set([...$keys(expected), ...$keys(actual)])) {
    const inner = $isArray(actual) ? `${path}[${name}]` : path ? `${path}.${name}` : name;
    const found = $firstDifference(actual[name], expected[name], inner);
    if (found !== null) return found;
  }
  return null;
}
