// The synchronous bridge: a request goes out through shared memory, the host answers into the same memory.
// Functions that every execution calls stand in parentheses: V8 then compiles them at once instead of reading them twice.
const { apply: $apply } = Reflect;
const { call: $call, bind: $bind } = Function.prototype;
const $uncurry = (method) => $apply($bind, $call, [method]);
const $JSON = { parse: JSON.parse, stringify: JSON.stringify };
const $StringPrototype = String.prototype;
const $plainCharCodeAt = $StringPrototype.charCodeAt;
const $charCodeAt = $uncurry($plainCharCodeAt);
const $startsWith = $uncurry($StringPrototype.startsWith);
const $slice = $uncurry($StringPrototype.slice);
const $fromCharCode = String.fromCharCode;
const $subarray = $uncurry(Uint16Array.prototype.subarray);
const $now = Date.now;
const $push = $uncurry(Array.prototype.push);
const $then = $uncurry(Promise.prototype.then);
const $resolve = Promise.resolve.bind(Promise);
const { defineProperty: $defineProperty, getOwnPropertyDescriptor: $describe, hasOwn: $hasOwn } = Object;
const $keys = Object.keys;
const $isArray = Array.isArray;
const $isFinite = Number.isFinite;
const $Error = Error;
const $TypeError = TypeError;
const $Set = Set;
const $String = String;
const $eval = eval;

const $header = new Int32Array($shared, 0, 4);
const $units = new Uint16Array($shared, 16);
const $room = $units.length;

const $read = (function () {
  let text = "";
  for (;;) {
    const length = $header[0];
    for (let at = 0; at < length; at += 8192) {
      text += $apply($fromCharCode, null, $subarray($units, at, at + 8192 < length ? at + 8192 : length));
    }
    if ($header[1] === 0) return text;
    $header[1] = 2;
    $notify();
  }
});

// The plain call is much the fastest; the other one stands in where a script replaced the method.
const $write = (function (text, at, count) {
  const now = $describe($StringPrototype, "charCodeAt");
  if (now !== undefined && $hasOwn(now, "value") && now.value === $plainCharCodeAt) {
    for (let i = 0; i < count; i++) $units[i] = text.charCodeAt(at + i);
  } else {
    for (let i = 0; i < count; i++) $units[i] = $charCodeAt(text, at + i);
  }
});

const $send = (function (text) {
  let at = 0;
  for (;;) {
    const rest = text.length - at;
    const count = rest < $room ? rest : $room;
    $write(text, at, count);
    at += count;
    $header[0] = count;
    $header[1] = at < text.length ? 1 : 0;
    $notify();
    if (at >= text.length) return $read();
  }
});

const $host = (function (name, payload) {
  const answer = $send(name + "\n" + payload);
  if ($header[2] === 1) {
    const failure = $JSON.parse(answer);
    const error = new $Error(failure.message);
    if (failure.name) error.name = failure.name;
    if (failure.code) error.code = failure.code;
    throw error;
  }
  return answer;
});

const $ask = ((name, value) => $JSON.parse($host(name, $JSON.stringify(value))));

// Parts that few scripts need: read at first use, given what they use of all this.
const $parts = { __proto__: null };
function $part(name) {
  if ($parts[name] === undefined) $parts[name] = $eval($host("part", name))($kit);
  return $parts[name];
}

// What belongs to one execution.
const $session = { __proto__: null };
const $reset = (function () {
  $session.given = [];
  $session.statements = { __proto__: null };
  $session.count = 0;
  $session.origins = { __proto__: null };
  $session.modules = { __proto__: null };
  $timers.length = 0;
  $timerCount = 0;
  $depth = 0;
});
let $shares = false;

const $hide = (function (target, name, value) {
  $defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
});

// Bytes travel as one UTF-16 unit each.
function $bytesToText(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += $apply($fromCharCode, null, bytes.subarray(at, at + 8192));
  }
  return text;
}

function $textToBytes(text) {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = $charCodeAt(text, i);
  return bytes;
}

function $asBytes(value) {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return null;
}

// JSON as authors expect it, but what JSON would lose silently is named instead.
const $DEEPEST = 500;
let $depth = 0;
function $plain(value, path, above) {
  if (value !== null && typeof value === "object") {
    if (typeof value.toJSON === "function") return $plain(value.toJSON(), path, above);
    if (above.has(value)) $invalid(path, "a cycle");
    if (++$depth > $DEEPEST) $refuse(path.slice(0, 60) + "… is nested more than " + $DEEPEST + " levels deep");
    above.add(value);
    if ($isArray(value)) {
      for (let i = 0; i < value.length; i++) $plain(value[i], path + "[" + i + "]", above);
    } else {
      const names = $keys(value);
      for (let i = 0; i < names.length; i++) $plain(value[names[i]], path + "." + names[i], above);
    }
    above.delete(value);
    $depth--;
    return;
  }
  if (typeof value === "number" && !$isFinite(value)) $invalid(path, $String(value));
  if (typeof value === "bigint") $invalid(path, "a BigInt");
  if (typeof value === "function") $invalid(path, "a function");
  if (typeof value === "symbol") $invalid(path, "a symbol");
}

const $invalid = (path, what) => $refuse(path + " is " + what + ", which JSON cannot hold");

function $refuse(message) {
  const error = new $TypeError(message);
  error.code = "invalid_result";
  throw error;
}

function $json(value, path) {
  $depth = 0;
  $plain(value, path, new $Set());
  const text = $JSON.stringify(value);
  return text === undefined ? "null" : text;
}

// Timers: kept here, fired by the host.
const $timers = [];
let $timerCount = 0;
function $timer(callback, delay, args, period) {
  if (typeof callback !== "function") throw new $TypeError("setTimeout expects a function");
  const pause = delay > 0 ? +delay : 0;
  const id = ++$timerCount;
  if ($shares && id === 1) $host("timed", "null");
  $push($timers, { id, due: $now() + pause, callback, args, period: period ? (pause > 1 ? pause : 1) : 0 });
  return id;
}
function $clear(id) {
  for (let i = 0; i < $timers.length; i++) if ($timers[i].id === id) return void $timers.splice(i, 1);
}
function $fire() {
  const now = $now();
  const due = $timers.filter((timer) => timer.due <= now).sort((a, b) => a.due - b.due || a.id - b.id);
  for (const timer of due) {
    const at = $timers.indexOf(timer);
    if (at < 0) continue;
    if (timer.period) timer.due = $now() + timer.period;
    else $timers.splice(at, 1);
    timer.callback(...timer.args);
  }
}
const $nextTimer = () => ($timers.length === 0 ? -1 : Math.max(0, Math.min(...$timers.map((timer) => timer.due)) - $now()));
$reset();
