// What authors expect and bare V8 lacks. Expensive things are made at first use.
function $lazy(name, make) {
  $defineProperty(globalThis, name, {
    configurable: true,
    enumerable: false,
    get() {
      const value = make();
      $hide(globalThis, name, value);
      return value;
    },
    set(value) {
      $hide(globalThis, name, value);
    },
  });
}

function $show(value) {
  if (typeof value === "string") return value;
  if (value instanceof $Error) return value.stack || $String(value);
  if (typeof value === "object" && value !== null) {
    try {
      return $JSON.stringify(value);
    } catch {
      return $String(value);
    }
  }
  return $String(value);
}

function $logger(level) {
  return function (...values) {
    let text = "";
    for (let i = 0; i < values.length; i++) text += (i > 0 ? " " : "") + $show(values[i]);
    $host("log", $JSON.stringify([level, text]));
  };
}

// the library declares these three with var: they can be assigned, not redefined
globalThis.setTimeout = (callback, delay, ...args) => $timer(callback, delay, args, false);
globalThis.clearTimeout = $clear;
globalThis.__timer_manager = undefined;
$hide(globalThis, "setInterval", (callback, delay, ...args) => $timer(callback, delay, args, true));
$hide(globalThis, "clearInterval", $clear);
$hide(globalThis, "queueMicrotask", (callback) => void $then($resolve(), callback));
$hide(globalThis, "global", globalThis);

$lazy("console", () => ({
  log: $logger("info"),
  info: $logger("info"),
  debug: $logger("debug"),
  warn: $logger("warning"),
  error: $logger("error"),
}));
$lazy("TextEncoder", () => class TextEncoder {
  get encoding() {
    return "utf-8";
  }
  encode(text = "") {
    return $textToBytes($host("utf8", $String(text)));
  }
});
$lazy("TextDecoder", () => class TextDecoder {
  constructor(label = "utf-8", options = {}) {
    this.encoding = $ask("encoding", $String(label));
    this.fatal = !!options.fatal;
    this.ignoreBOM = !!options.ignoreBOM;
  }
  decode(bytes) {
    if (bytes === undefined) return "";
    return $ask("decode", [this.encoding, this.fatal, this.ignoreBOM, $bytesToText($asBytes(bytes))]);
  }
});
$lazy("atob", () => (text) => $host("atob", $String(text)));
$lazy("btoa", () => (text) => $host("btoa", $String(text)));
$lazy("structuredClone", () => {
  const copy = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") {
      const error = new $Error($String(value) + " could not be cloned");
      error.name = "DataCloneError";
      throw error;
    }
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    let twin;
    if (value instanceof Date) twin = new Date(value);
    else if (value instanceof RegExp) twin = new RegExp(value.source, value.flags);
    else if (value instanceof ArrayBuffer) twin = value.slice(0);
    else if (ArrayBuffer.isView(value)) twin = value.slice();
    else if (value instanceof Map) twin = new Map();
    else if (value instanceof Set) twin = new Set();
    else if (value instanceof $Error) twin = new value.constructor(value.message);
    else twin = $isArray(value) ? [] : {};
    seen.set(value, twin);
    if (value instanceof Map) for (const [key, item] of value) twin.set(copy(key, seen), copy(item, seen));
    else if (value instanceof Set) for (const item of value) twin.add(copy(item, seen));
    else if ($isArray(value) || Object.getPrototypeOf(value) === Object.prototype || !(twin instanceof Date)) {
      if (!ArrayBuffer.isView(value) && !(value instanceof ArrayBuffer) && !(value instanceof RegExp))
        for (const name of $keys(value)) twin[name] = copy(value[name], seen);
    }
    return twin;
  };
  return (value) => copy(value, new Map());
});

function $digest(algorithm, data, encoding) {
  const bytes = $asBytes(data);
  const hex = $ask("hash", [algorithm, bytes === null ? null : $bytesToText(bytes), bytes === null ? $String(data) : null]);
  if (encoding === "hex" || encoding === undefined) return hex;
  const raw = new Uint8Array(hex.length / 2);
  for (let i = 0; i < raw.length; i++) raw[i] = parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  if (encoding === "bytes") return raw;
  if (encoding === "base64") return btoa($bytesToText(raw));
  throw new $TypeError('unknown digest encoding "' + encoding + '"');
}
const $crypto = {
  randomUUID: () => $host("uuid", ""),
  getRandomValues(array) {
    const bytes = $asBytes(array);
    bytes.set($textToBytes($host("random", $String(bytes.length))));
    return array;
  },
  hash: $digest,
  createHash(algorithm) {
    const parts = [];
    return {
      update(data) {
        const bytes = $asBytes(data) || new TextEncoder().encode($String(data));
        $push(parts, $bytesToText(bytes));
        return this;
      },
      digest: (encoding) => $digest(algorithm, $textToBytes(parts.join("")), encoding === undefined ? "bytes" : encoding),
    };
  },
};
$hide(globalThis, "crypto", $crypto);
