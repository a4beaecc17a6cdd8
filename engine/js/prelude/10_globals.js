// What authors expect and bare V8 lacks. Expensive things are made at first use.
const $lazy = (function (name, make) {
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
});

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

const $logger = (function (level) {
  return function (...values) {
    let text = "";
    for (let i = 0; i < values.length; i++) text += (i > 0 ? " " : "") + $show(values[i]);
    $host("log", $JSON.stringify([level, text]));
  };
});

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
for (const name of ["TextEncoder", "TextDecoder", "atob", "btoa", "structuredClone"]) $lazy(name, () => $part("text")[name]);
for (const name of ["URL", "URLSearchParams"]) $lazy(name, () => $part("url")[name]);
$lazy("crypto", () => $part("crypto"));
