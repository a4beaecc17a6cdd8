// What hooks find as globals.
function $install() {
  const key = (value, name) => {
    if (typeof value === "string" && value !== "" && !value.includes("\0")) return value;
    if (typeof value === "number") return $String(value);
    throw new $TypeError(name + ": the key must be a string");
  };
  const text = (value, name) => {
    if (typeof value === "string") return value;
    if (typeof value === "number" || typeof value === "boolean") return $String(value);
    throw new $TypeError(name + ": the value must be a string (json_encode makes one)");
  };
  const number = (value, otherwise, name, what) => {
    if (value === undefined || value === null) return otherwise;
    if (typeof value === "number" && $isFinite(value)) return value;
    throw new $TypeError(name + ": the " + what + " must be a number");
  };
  const parameters = (values) => $params(values === undefined || values === null ? [] : [$isArray(values) ? values : [values]]);

  $offer("log", $logger("info"));
  $offer("print", (...values) => void $host("print", $JSON.stringify(values.map($show).join(" "))));
  $offer("env_get", (name) => $ask("env", $String(name)));
  $offer("json_encode", (value) => {
    const encoded = $JSON.stringify(value);
    if (encoded === undefined) throw new $TypeError("json_encode: a " + typeof value + " is no JSON");
    return encoded;
  });
  $offer("json_decode", (encoded) => {
    if (typeof encoded !== "string") throw new $TypeError("json_decode expects a string");
    if (encoded.length >= 10485760) throw new $TypeError("json_decode: the text is larger than 10 MB");
    return $JSON.parse(encoded);
  });
  $offer("defer", (run) => {
    if (typeof run !== "function") throw new $TypeError("defer expects a function");
    if ($phase !== "hook" && $phase !== "defer") throw new $Error("defer belongs into a hook");
    $push($deferred, run);
  });
  $offer("copy", (value) => (!$isTable(value) ? value : $isArray(value) ? [...value] : { ...value }));
  $offer("deep_copy", (value) => $deepCopy(value, new Map()));
  $offer("dump", (value) => $dump(value, "", new $Set()));
  $offer("require", $requireFrom("hooks.js"));
  $lazy("engine", () => Object.freeze($ask("engine", null)));

  $offerLater("sleep", (pause) => new $Promise((resolve) => $timer(resolve, number(pause, 0, "sleep", "time"), [], false)));
  $offerLater("fs_read", (path) => $ask("fs.read", $String(path)));
  $offerLater("notify", (title, body, timeout) => {
    $ask("notify", [$String(title), body === undefined || body === null ? "" : $String(body), number(timeout, 5000, "notify", "timeout")]);
  });
  for (const [prefix, shape] of [["store", text], ["global_store", text], ["batch", (value) => $JSON.parse($json(value, "value"))]]) {
    $offerLater(prefix + "_get", (name) => $ask(prefix + ".get", key(name, prefix + "_get")));
    $offerLater(prefix + "_set", (name, value) => $ask(prefix + ".set", [key(name, prefix + "_set"), shape(value, prefix + "_set")]));
    $offerLater(prefix + "_delete", (name) => $ask(prefix + ".delete", key(name, prefix + "_delete")));
    const incr = prefix + "_incr";
    $offerLater(incr, (name, first, delta) => {
      const start = number(first, 0, incr, "default");
      const step = number(delta, 1, incr, "delta");
      const where = key(name, incr);
      try {
        const answer = $ask(prefix + ".incr", [where, start, step]);
        if (answer.fault === undefined) return answer.value;
        $report("error", incr + "(" + where + "): " + answer.fault);
      } catch (error) {
        if (error.code === "changed") throw error;
        $report("error", incr + "(" + where + "): " + error.message);
      }
      return start;
    });
  }
  // the only one for the top level: it makes tables, and whoever reads the script would not wait for it
  $offer("db_exec", (sql, values) => {
    if ($phase === "load") return $resolve($ask("db.define", [$sql(sql), parameters(values)]));
    $guard("db_exec");
    return new $Promise((resolve) => resolve($ask("db.exec", [$sql(sql), parameters(values)])));
  });
  $offerLater("db_query", (sql, values) => $rows($ask("db.query", [$sql(sql), parameters(values)])));

  const http = (request) => $later("http", { ...request, headers: $headers(request.headers), body: $body(request.body) });
  $offerLater("http_get", (url, headers) => http({ method: "GET", url: $String(url), headers }));
  $offerLater("http_post", (url, body, headers) =>
    http({ method: "POST", url: $String(url), body: body === undefined || body === null ? "" : body, headers, form: true }),
  );
  $offerLater("http_request", (options) => {
    if (!$isTable(options)) throw new $TypeError("http_request expects an object");
    const { method = "GET", url, body, headers, proxy, timeout, max_body_size } = options;
    if (typeof url !== "string") throw new $TypeError("http_request: url is missing");
    return http({ method: $String(method), url, body, headers, proxy, timeout, max_body_size });
  });
  $offerLater("http_multipart", (url, fields, headers) => {
    if (!$isTable(fields)) throw new $TypeError("http_multipart expects an object of fields");
    const parts = Object.entries(fields).map(([name, value]) => $formPart(name, value));
    return http({ method: "POST", url: $String(url), headers, parts });
  });

  const assertions = {
    assert_eq(actual, expected, message) {
      if (!$same(actual, expected)) $unequal(message, $dump(actual, "", new $Set()) + " is not " + $dump(expected, "", new $Set()));
    },
    assert_ne(actual, expected, message) {
      if ($same(actual, expected)) $unequal(message, $dump(actual, "", new $Set()) + " was not expected");
    },
  };
  $offer("spyweb", assertions);
  $offer("scraper", assertions);
}

function $headers(headers) {
  if (headers === undefined || headers === null) return null;
  if (!$isTable(headers)) throw new $TypeError("headers must be an object");
  return Object.entries(headers).map(([name, value]) => [name, $String(value)]);
}

function $body(body) {
  if (body === undefined || body === null) return null;
  if (typeof body === "string") return { $text: body };
  const bytes = $asBytes(body);
  if (bytes !== null) return { $bytes: $bytesToText(bytes) };
  if (body instanceof URLSearchParams) return { $text: $String(body) };
  throw new $TypeError("the body must be a string (json_encode makes one)");
}

function $formPart(name, value) {
  const file = $isTable(value) && $asBytes(value) === null;
  const content = file ? value.content : value;
  return {
    name,
    content: $body(typeof content === "number" || typeof content === "boolean" ? $String(content) : content),
    filename: file && value.filename !== undefined ? $String(value.filename) : null,
    type: file && value.content_type !== undefined ? $String(value.content_type) : null,
  };
}

function $deepCopy(value, seen) {
  if (!$isTable(value)) return value;
  if (seen.has(value)) return seen.get(value);
  const twin = $isArray(value) ? [] : {};
  seen.set(value, twin);
  for (const name of $keys(value)) twin[name] = $deepCopy(value[name], seen);
  return twin;
}

function $dump(value, indent, above) {
  if (typeof value === "string") return $JSON.stringify(value);
  if (typeof value === "function") return "function " + value.name;
  if (!$isTable(value)) return $String(value) + (typeof value === "bigint" ? "n" : "");
  if (above.has(value)) return "<cycle>";
  if (value instanceof $Error || value instanceof Date) return $String(value);
  const names = $keys(value);
  const [open, close] = $isArray(value) ? "[]" : "{}";
  if (names.length === 0) return open + close;
  above.add(value);
  const deeper = indent + "  ";
  const lines = names.map((name) => deeper + ($isArray(value) ? "" : name + ": ") + $dump(value[name], deeper, above));
  above.delete(value);
  return open + "\n" + lines.join(",\n") + "\n" + indent + close;
}

function $same(one, other) {
  if (Object.is(one, other) || one === other) return true;
  if (!$isTable(one) || !$isTable(other) || $isArray(one) !== $isArray(other)) return false;
  const names = $keys(one);
  return names.length === $keys(other).length && names.every((name) => Object.hasOwn(other, name) && $same(one[name], other[name]));
}

function $unequal(message, what) {
  const error = new $Error(message === undefined ? what : $String(message) + ": " + what);
  error.name = "AssertionError";
  throw error;
}
