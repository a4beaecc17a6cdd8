// A realm that many executions share: what one of them could leave behind for the next is frozen or taken away.
"use strict";
(function ({ $defineProperty, $hasOwn, $TypeError }) {
  const { freeze, getPrototypeOf, getOwnPropertyDescriptor, getOwnPropertyNames } = Object;
  const { ownKeys } = Reflect;

  // State of the realm that no freezing reaches: the last match, and tasks that run when their execution is over.
  function takeAway() {
    for (const name of getOwnPropertyNames(RegExp)) {
      if (!["length", "name", "prototype", "escape"].includes(name)) delete RegExp[name];
    }
    for (const name of ["FinalizationRegistry", "WeakRef", "WebAssembly", "__timer_manager"]) delete globalThis[name];
    delete Atomics.waitAsync;
  }

  // Intrinsics that no property leads to, by way of what they make.
  function* hidden() {
    yield* [function* () {}, async function () {}, async function* () {}, (function* () {})(), (async function* () {})()];
    for (const made of [[], "", new Map(), new Set()]) yield made[Symbol.iterator]();
    yield "".matchAll(/x/g);
    yield Iterator.from({ next() {} });
    yield [].values().map((value) => value);
    const segments = new Intl.Segmenter().segment("a");
    yield* [segments, segments[Symbol.iterator]()];
    yield new Error("");
    yield (function () { return arguments; })(); // strict here: its callee is an accessor
  }

  function reachable() {
    const found = new Set();
    const left = [globalThis];
    const add = (value) => {
      if ((typeof value !== "object" && typeof value !== "function") || value === null || found.has(value)) return;
      found.add(value);
      left.push(value);
    };
    for (const sample of hidden()) left.push(sample);
    found.add(globalThis);
    while (left.length > 0) {
      const value = left.pop();
      add(getPrototypeOf(value));
      for (const key of ownKeys(value)) {
        const property = getOwnPropertyDescriptor(value, key);
        add(property.value);
        add(property.get);
        add(property.set);
      }
    }
    return found;
  }

  // A frozen property would keep objects that inherit it from being given one of that name by assignment. As an
  // accessor it makes one on the object that is assigned to.
  function allowOverride(holder, key) {
    const property = getOwnPropertyDescriptor(holder, key);
    if (property === undefined || !property.configurable || !("value" in property)) return;
    const { value, enumerable } = property;
    const accessor = {
      get() {
        return value;
      },
      set(replacement) {
        if (this === holder) throw new $TypeError(`${String(key)} is frozen in this site's isolates`);
        if ((typeof this !== "object" && typeof this !== "function") || this === null) return;
        if ($hasOwn(this, key)) this[key] = replacement;
        else $defineProperty(this, key, { value: replacement, writable: true, enumerable: true, configurable: true });
      },
    };
    $defineProperty(holder, key, { get: accessor.get, set: accessor.set, enumerable, configurable: true });
  }

  const everyName = (found) =>
    [...found].filter((value) => value === Object.prototype || value === Function.prototype || isErrorPrototype(value));
  const isErrorPrototype = (value) => value === Error.prototype || getPrototypeOf(value) === Error.prototype;
  // arrays, promises and regular expressions get slower where their constructor is no plain property
  const PLAIN = [Array.prototype, Promise.prototype, RegExp.prototype];

  return function freezeAll() {
    takeAway();
    for (const name of getOwnPropertyNames(globalThis)) void globalThis[name]; // what is made at first use
    const found = reachable();
    for (const holder of everyName(found)) for (const key of ownKeys(holder)) allowOverride(holder, key);
    for (const holder of found) {
      const constructor = getOwnPropertyDescriptor(holder, "constructor");
      if (constructor === undefined || typeof constructor.value !== "function") continue;
      const names = PLAIN.includes(holder) ? [] : ["constructor"];
      for (const key of [...names, "toString", "toLocaleString", "valueOf", "toJSON"]) allowOverride(holder, key);
    }
    for (const value of [...found, ...reachable()]) freeze(value); // accessors hide what they give
  };
});
