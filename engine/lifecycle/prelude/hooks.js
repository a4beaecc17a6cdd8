// Hooks of lifecycle jobs. Evaluated in the closure of the engine's prelude, before it: only functions may use its names.
const $ITEM_HOOKS = new Set(["override_extract", "after_extract", "before_store", "before_notify"]);
const $ENGINE_KEYS = new Set(["worker_id", "last_fetch", "selector_matches", "telemetry"]);
const $Promise = Promise;
const $waiting = new Map();
let $hookTable = {};
let $phase = "load";
let $deferred = [];
let $running = null;
const $extensions = [];

globalThis.$hooks = (command, value) => {
  switch (command) {
    case "install":
      $install();
      for (const extend of $extensions) extend();
      return;
    case "offer":
      $hookTable = value;
      $phase = "idle";
      return Object.keys(value).filter((name) => value[name] !== undefined).join(" ");
    case "call":
      return $callHook();
    case "complete":
      return $complete();
    case "expire":
      return $running && $running([new $Error($ask("hook.why", null))]);
    case "next":
      return $nextTimer();
    case "timers":
      return $fireHookTimers();
  }
};

function $fireHookTimers() {
  try {
    $fire();
  } catch (error) {
    if ($running) $running([error]);
  }
}

// What may be called where: an asynchronous function only inside a hook.
function $guard(name) {
  if ($phase === "hook") return;
  const where = {
    load: "at the top level of a script",
    defer: "in a deferred function: only synchronous functions can",
    idle: "after its hook has ended",
  };
  throw new $Error(name + " cannot be called " + where[$phase]);
}

// A global whose failures are rejections, but for those of the place where it is called.
function $offerLater(name, run) {
  $offer(name, (...values) => {
    $guard(name);
    try {
      return $resolve(run(...values));
    } catch (error) {
      return $Promise.reject(error);
    }
  });
}

function $offer(name, value) {
  $hide(globalThis, name, value);
}

// A Promise of a host function that runs beside the script.
function $later(name, value) {
  $guard(name);
  return new $Promise((resolve, reject) => {
    const id = $ask("later.start", [name, value === undefined ? null : value]);
    $waiting.set(id, [resolve, reject]);
  });
}

// A host function that is waited for; the only kind for a deferred function.
function $directly(name, value) {
  return $ask("directly", [name, value === undefined ? null : value]);
}

function $complete() {
  for (const [id, failed, value] of $ask("later.take", null)) {
    const settle = $waiting.get(id);
    if (settle === undefined) continue;
    $waiting.delete(id);
    settle[failed ? 1 : 0](failed ? $rejection(value) : value);
  }
}

function $rejection(told) {
  const { message, ...more } = told;
  return Object.assign(new $Error(message), more);
}

function $callHook() {
  const job = $ask("hook.job", null);
  const places = new WeakMap();
  const values = job.values;
  if (job.stage === "before_webhook") $eachItem(values[0], $addViews);
  else for (const value of values) $eachItem($isArray(value) ? { items: value } : { items: [value] }, (item, at) => $place(places, item, at));
  const ctx = job.ctx === null ? null : $makeCtx(job.ctx);
  if (ctx !== null) $push(values, ctx);
  let ended = false;
  $deferred = [];
  $phase = "hook";
  $running = (failure, value) => {
    if (ended) return;
    ended = true;
    let answer;
    try {
      if (failure !== null) throw failure[0];
      answer = $encoded(job.stage, value, places);
    } catch (error) {
      answer = { kind: "threw", error: $told(error) };
    }
    $drain();
    $phase = "idle";
    $running = null;
    $timers.length = 0;
    $waiting.clear();
    answer.ctx = ctx === null ? null : $snapshot(ctx);
    $host("hook.end", $JSON.stringify(answer));
  };
  const end = $running;
  let outcome;
  try {
    outcome = $apply($hookTable[job.stage], undefined, values);
  } catch (error) {
    return end([error]);
  }
  if (!$isThenable(outcome)) return end(null, outcome);
  $then($resolve(outcome), (value) => end(null, value), (error) => end([error]));
}

const $isThenable = (value) => value !== null && typeof value === "object" && typeof value.then === "function";

function $told(error) {
  if (error === null || typeof error !== "object") return { message: $show(error), name: "", stack: "" };
  return {
    message: $String(error.message === undefined ? $show(error) : error.message),
    name: typeof error.name === "string" ? error.name : "",
    stack: typeof error.stack === "string" ? error.stack : "",
  };
}

// Deferred functions: last in, first called; what they defer comes in the next round.
function $drain() {
  $phase = "defer";
  while ($deferred.length > 0) {
    const round = $deferred;
    $deferred = [];
    while (round.length > 0) {
      try {
        const returned = round.pop()();
        if ($isThenable(returned)) {
          $report("warning", "deferred function must be synchronous");
          $then($resolve(returned), undefined, (error) => $report("error", "deferred function: " + $show(error)));
        }
      } catch (error) {
        $report("error", "deferred function: " + $show(error));
      }
    }
  }
}

const $report = (level, text) => void $host("log", $JSON.stringify([level, text]));

// ctx: what is the engine's can be read, and changed for nobody but the hook itself.
function $makeCtx(told) {
  const ctx = told.kept;
  if (ctx.shared === undefined) ctx.shared = {};
  $defineProperty(ctx, "worker_id", {
    enumerable: true,
    configurable: false,
    get: () => told.worker_id,
    set() {
      throw new $TypeError("ctx.worker_id is read-only");
    },
  });
  const owned = (name, read) => {
    let value;
    let known = false;
    $defineProperty(ctx, name, {
      enumerable: true,
      configurable: true,
      get() {
        if (!known) [known, value] = [true, read()];
        return value;
      },
      set(other) {
        [known, value] = [true, other];
      },
    });
  };
  owned("telemetry", () => {
    const stages = told.telemetry.stages;
    if ($isArray(stages)) told.telemetry.map = Object.fromEntries(stages.map((stage) => [stage.name, stage]));
    return told.telemetry;
  });
  if (told.selector_matches !== null) owned("selector_matches", () => told.selector_matches);
  if (told.fetched) owned("last_fetch", () => $ask("ctx.last_fetch", null));
  return ctx;
}

function $snapshot(ctx) {
  const parts = [];
  for (const name of $keys(ctx)) {
    if ($ENGINE_KEYS.has(name)) continue;
    let text;
    try {
      text = ctx[name] === undefined ? undefined : $json(ctx[name], "ctx." + name);
    } catch {
      text = $JSON.stringify($pruned(ctx, name, "ctx." + name, new $Set()));
    }
    if (text !== undefined) $push(parts, $JSON.stringify(name) + ":" + text);
  }
  return "{" + parts.join(",") + "}";
}

// A copy without what JSON cannot hold; every loss is logged.
function $pruned(holder, name, path, above) {
  const lost = (what) => $report("warning", path + " is " + what + ", which ctx cannot keep: dropped");
  let value;
  try {
    value = holder[name];
    if (value !== null && typeof value === "object" && typeof value.toJSON === "function") value = value.toJSON();
  } catch (error) {
    return lost("unreadable (" + $show(error) + ")");
  }
  if (typeof value === "function" || typeof value === "symbol" || typeof value === "bigint") return lost("a " + typeof value);
  if (typeof value === "number" && !$isFinite(value)) return lost($String(value));
  if (value === null || typeof value !== "object") return value;
  if (above.has(value)) return lost("a cycle");
  if (above.size > $DEEPEST) return lost("nested too deep");
  above.add(value);
  const twin = $isArray(value) ? [] : {};
  for (const key of $keys(value)) {
    const item = $pruned(value, key, path + "." + key, above);
    if (item !== undefined) twin[key] = item;
    else if ($isArray(value)) twin[key] = null;
  }
  above.delete(value);
  return twin;
}

// Items: where an item or its matches came from is remembered, for matches are the engine's.
function $eachItem(payload, visit) {
  const items = payload !== null && typeof payload === "object" && $isArray(payload.items) ? payload.items : [];
  items.forEach((item, at) => {
    if (item !== null && typeof item === "object") visit(item, at);
  });
}

function $place(places, item, at) {
  places.set(item, at);
  if ($isArray(item.matches)) places.set(item.matches, at);
}

function $addViews(item) {
  const hidden = new $Set(["keywords", "fields", "matches"]);
  const fields = new Proxy(item, {
    get: (target, name) => (hidden.has(name) ? undefined : target[name]),
    has: (target, name) => !hidden.has(name) && name in target,
    ownKeys: (target) => Reflect.ownKeys(target).filter((name) => !hidden.has(name)),
    getOwnPropertyDescriptor: (target, name) => (hidden.has(name) ? undefined : Reflect.getOwnPropertyDescriptor(target, name)),
  });
  for (const [name, get, set] of [
    ["fields", () => fields, (value) => void Object.assign(item, value)],
    ["matches", () => item.keywords, (value) => void (item.keywords = value)],
  ]) {
    if (!Object.hasOwn(item, name)) $defineProperty(item, name, { enumerable: false, configurable: true, get, set });
  }
}

const $isTable = (value) => value !== null && typeof value === "object";

function $encoded(stage, value, places) {
  if (stage.startsWith("on_") || stage.startsWith("test_")) return { kind: "other" }; // nobody looks at it
  if (value === undefined || value === null || value === false) return { kind: $String(value) };
  if (typeof value === "bigint") throw new $TypeError(stage + " returned a BigInt, which JSON cannot hold");
  if (!$isTable(value)) return { kind: "other" };
  if ($ITEM_HOOKS.has(stage)) {
    if (!$isArray(value)) throw new $TypeError(stage + " must return an array of items, not an object");
    const items = value.filter((item) => $isTable(item) && !$isArray(item));
    return { kind: "table", value: items.map((item, at) => $item(stage, item, places, at)) };
  }
  if (stage === "filter_item") {
    if ($isArray(value)) throw new $TypeError("filter_item must return its item, not an array");
    return { kind: "table", value: $item(stage, value, places, 0) };
  }
  const text = $JSON.stringify(value); // throws for cycles and BigInt
  return text === undefined ? { kind: "other" } : { kind: "table", value: $JSON.parse(text) };
}

function $item(stage, item, places, at) {
  const { fields, matches } = item;
  if (!$isTable(fields) || $isArray(fields)) throw new $TypeError(stage + ": item " + at + " has no fields object");
  const shown = {};
  for (const name of $keys(fields)) shown[name] = $fieldText(fields[name], stage, at, name);
  const known = places.get(item);
  const from = known !== undefined ? known : $isTable(matches) ? places.get(matches) : undefined;
  return { fields: shown, from: from === undefined ? null : from };
}

function $fieldText(value, stage, at, name) {
  if (typeof value === "string") return value;
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return $String(value);
  const text = typeof value === "bigint" ? undefined : $JSON.stringify(value);
  if (text === undefined) throw new $TypeError(stage + ": item " + at + ": field " + name + " is a " + typeof value);
  return text;
}
