// Encodings and structuredClone.
"use strict";
(function ({ $ask, $host, $String, $Error, $isArray, $keys, $asBytes, $bytesToText, $textToBytes }) {
  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text = "") {
      return $textToBytes($host("utf8", $String(text)));
    }
  }
  class TextDecoder {
    constructor(label = "utf-8", options = {}) {
      this.encoding = $ask("encoding", $String(label));
      this.fatal = !!options.fatal;
      this.ignoreBOM = !!options.ignoreBOM;
    }
    decode(bytes) {
      if (bytes === undefined) return "";
      return $ask("decode", [this.encoding, this.fatal, this.ignoreBOM, $bytesToText($asBytes(bytes))]);
    }
  }
  const atob = (text) => $host("atob", $String(text));
  const btoa = (text) => $host("btoa", $String(text));
  const structuredClone = (() => {
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
  })();
  return { TextEncoder, TextDecoder, atob, btoa, structuredClone };
});
