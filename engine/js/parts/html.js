// require("html"): the tree lives in the host; a node here is a handle that knows its attributes.
"use strict";
(function ({ $ask, $String, $charCodeAt, $startsWith, $slice, $session }) {
  // a text the host itself gave out need not go back
  function $parsed(text) {
    const { given } = $session;
    for (let i = 0; i < given.length; i++) {
      if (given[i].text === text) return $ask("html.given", given[i].where);
    }
    return $ask("html.parse", text);
  }
  // The host resolves URLs. An absolute path of harmless characters needs no more than the base's origin.
  function resolve(base, href) {
    const { origins } = $session;
    const origin = origins[base];
    if (origin === undefined) origins[base] = "";
    else if (origin === "") origins[base] = originOf($ask("html.resolve", [base, "/"]));
    else if (origin !== null && isPlain(href)) return origin + href;
    return $ask("html.resolve", [base, href]);
  }

  const originOf = (root) => ($startsWith(root, "http://") || $startsWith(root, "https://") ? $slice(root, 0, -1) : null);

  function isPlain(href) {
    if (href[0] !== "/" || href[1] === "/") return false;
    let last = 0;
    for (let i = 0; i < href.length; i++) {
      const unit = $charCodeAt(href, i);
      const letter = (unit >= 97 && unit <= 122) || (unit >= 65 && unit <= 90) || (unit >= 48 && unit <= 57);
      const harmless = letter || unit === 47 || unit === 45 || unit === 95 || (unit === 46 && last !== 47); // / - _ .
      if (!harmless) return false;
      last = unit;
    }
    return true;
  }

  // in parentheses, like all that is called at once: V8 then reads it once, not twice
  return (function html() {
    class Node {
      #id;
      constructor(shown) {
        this.#id = shown[0];
        this.tag = shown[1];
        this.attrs = shown[2];
      }
      css(selector) {
        return $ask("html.css", [this.#id, selector]).map((shown) => new Node(shown));
      }
      first(selector) {
        const shown = $ask("html.first", [this.#id, selector]);
        return shown === null ? null : new Node(shown);
      }
      text(options) {
        return $ask("html.text", [this.#id, options || {}]);
      }
      attr(name) {
        return Object.hasOwn(this.attrs, name) ? this.attrs[name] : null;
      }
      html() {
        return $ask("html.html", this.#id);
      }
      get parent() {
        const shown = $ask("html.parent", this.#id);
        return shown === null ? null : new Node(shown);
      }
      get next() {
        const shown = $ask("html.next", this.#id);
        return shown === null ? null : new Node(shown);
      }
      get children() {
        return $ask("html.children", this.#id).map((shown) => new Node(shown));
      }
      extract(selector, fields) {
        return $ask("html.extract", [this.#id, selector, fields]);
      }
      table(selector) {
        return $ask("html.table", [this.#id, selector || null]);
      }
      links(base) {
        return $ask("html.links", [this.#id, base || null]);
      }
      form(selector) {
        return $ask("html.form", [this.#id, selector || null]);
      }
    }
    return {
      parse: (text) => new Node($parsed($String(text))),
      resolve: (base, href) => resolve($String(base), $String(href)),
      unescape: (text) => $ask("html.unescape", $String(text)),
    };
  });
});
