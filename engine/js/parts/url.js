// URL after the WHATWG standard: the parsing is the host's (ada), the objects are ours.
"use strict";
(function ({ $ask, $String, $TypeError, $defineProperty }) {
  function $encodeForm(text) {
    return encodeURIComponent(text.toWellFormed()).replace(/%20/g, "+").replace(/[!'()~]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
  }
  function $decodeForm(text) {
    const spaced = text.replace(/\+/g, " ");
    try {
      return decodeURIComponent(spaced);
    } catch {
      return $ask("percent", spaced);
    }
  }

  class URLSearchParams {
    #pairs = [];
    #changed = null;
    constructor(init = "", changed = null) {
      this.#changed = typeof changed === "function" ? changed : null;
      if (typeof init === "string") {
        const text = init.startsWith("?") ? init.slice(1) : init;
        for (const part of text.split("&")) {
          if (part === "") continue;
          const at = part.indexOf("=");
          const name = at < 0 ? part : part.slice(0, at);
          this.#pairs.push([$decodeForm(name), $decodeForm(at < 0 ? "" : part.slice(at + 1))]);
        }
      } else if (init !== null && typeof init === "object") {
        const entries = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
        for (const [name, value] of entries) this.#pairs.push([$String(name), $String(value)]);
      }
    }
    #touch() {
      if (this.#changed) this.#changed(this.toString());
    }
    append(name, value) {
      this.#pairs.push([$String(name), $String(value)]);
      this.#touch();
    }
    delete(name, value) {
      this.#pairs = this.#pairs.filter((pair) => pair[0] !== $String(name) || (value !== undefined && pair[1] !== $String(value)));
      this.#touch();
    }
    get(name) {
      const found = this.#pairs.find((pair) => pair[0] === $String(name));
      return found ? found[1] : null;
    }
    getAll(name) {
      return this.#pairs.filter((pair) => pair[0] === $String(name)).map((pair) => pair[1]);
    }
    has(name, value) {
      return this.#pairs.some((pair) => pair[0] === $String(name) && (value === undefined || pair[1] === $String(value)));
    }
    set(name, value) {
      const first = this.#pairs.find((pair) => pair[0] === $String(name));
      if (!first) return this.append(name, value);
      first[1] = $String(value);
      this.#pairs = this.#pairs.filter((pair) => pair === first || pair[0] !== first[0]);
      this.#touch();
    }
    sort() {
      this.#pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#touch();
    }
    forEach(callback, self) {
      for (const [name, value] of this.#pairs) callback.call(self, value, name, this);
    }
    get size() {
      return this.#pairs.length;
    }
    *entries() {
      for (const pair of this.#pairs) yield [pair[0], pair[1]];
    }
    *keys() {
      for (const pair of this.#pairs) yield pair[0];
    }
    *values() {
      for (const pair of this.#pairs) yield pair[1];
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toString() {
      return this.#pairs.map((pair) => $encodeForm(pair[0]) + "=" + $encodeForm(pair[1])).join("&");
    }
  }

  const parts = ["protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  class URL {
    #parts;
    #query = null;
    constructor(url, base) {
      const parsed = $ask("url", base === undefined ? [$String(url)] : [$String(url), $String(base)]);
      if (parsed === null) {
        const error = new $TypeError('invalid URL "' + url + '"' + (base === undefined ? "" : ' with base "' + base + '"'));
        error.code = "ERR_INVALID_URL";
        throw error;
      }
      this.#parts = parsed;
    }
    static canParse(url, base) {
      return $ask("url", base === undefined ? [$String(url)] : [$String(url), $String(base)]) !== null;
    }
    static parse(url, base) {
      return URL.canParse(url, base) ? new URL(url, base) : null;
    }
    get href() {
      return this.#parts.href;
    }
    set href(value) {
      this.#parts = new URL(value).#parts;
    }
    get origin() {
      return this.#parts.origin;
    }
    get searchParams() {
      if (this.#query === null)
        this.#query = new URLSearchParams(this.#parts.search, (text) => this.$set("search", text));
      return this.#query;
    }
    $get(name) {
      return this.#parts[name];
    }
    $set(name, value) {
      const parsed = $ask("urlset", [this.#parts.href, name, $String(value)]);
      if (parsed !== null) this.#parts = parsed;
    }
    toString() {
      return this.href;
    }
    toJSON() {
      return this.href;
    }
  }
  for (const name of parts) {
    $defineProperty(URL.prototype, name, {
      enumerable: true,
      configurable: true,
      get() {
        return this.$get(name);
      },
      set(value) {
        this.$set(name, value);
      },
    });
  }
  return { URL, URLSearchParams };
});
