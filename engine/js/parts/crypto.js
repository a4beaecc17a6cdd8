// The global crypto, and require("crypto").
"use strict";
(function ({ $ask, $host, $push, $String, $TypeError, $asBytes, $bytesToText, $textToBytes }) {
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
  return {
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
});
