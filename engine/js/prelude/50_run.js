// One execution: the context an author sees, the call, and its envelope.
function $emit(spec) {
  if (spec === null || typeof spec !== "object" || $isArray(spec)) throw new $TypeError("emit expects an object");
  return $ask("emit", $JSON.parse($json(spec, "emit")));
}

const $context = ((job) => ({ ...job.ctx, log: $logger("info"), emit: (spec) => $emit(spec) }));

const $addScriptMethods = (function (ctx) {
  const known = { __proto__: null };
  ctx.dep = (id) => {
    const key = $String(id);
    if (!(key in known)) {
      const found = $ask("dep", key);
      if (found !== null && found.artifacts.length > 0) found.artifacts = found.artifacts.map($part("artifacts").view);
      known[key] = found;
    }
    return known[key];
  };
  ctx.writeRecord = (collection, key, data) => {
    if (typeof collection !== "string" || collection.trim() === "") throw new $TypeError("writeRecord: the collection is blank");
    $host("record", $JSON.stringify([collection, key === undefined || key === null ? "" : $String(key), $json(data, "record")]));
  };
  ctx.writeArtifact = (spec) => $part("artifacts").write(spec);
  return ctx;
});

const $script = (function (job, found) {
  const exported = $load(found);
  const run = typeof exported === "function" ? exported : exported && exported.default;
  if (typeof run !== "function") throw new $TypeError(found.name + " exports no function (module.exports = function (ctx) { … })");
  return $apply(run, undefined, [$addScriptMethods($context(job))]);
});

const $begin = (function (job) {
  const found = $ask("entry", job.entry);
  switch (job.mode) {
    case "script":
      return $script(job, found);
    case "verb":
    case "migration":
    case "scan":
      return $part("modes")[job.mode](job, found);
    default:
      return $more(job, found); // from the source that the caller of execute() adds
  }
});

const $finish = (function (value) {
  if (value === undefined) return void $host("done", "null");
  let text;
  try {
    text = $json(value, "result");
  } catch (error) {
    return $failed(error);
  }
  $host("done", text);
});

function $failed(error) {
  const shown = { message: "", stack: "", code: "", retryable: false, name: "" };
  if (error !== null && typeof error === "object") {
    shown.message = $String(error.message === undefined ? $show(error) : error.message);
    shown.stack = typeof error.stack === "string" ? error.stack : "";
    shown.name = typeof error.name === "string" ? error.name : "";
    shown.code = typeof error.code === "string" ? error.code : "";
    shown.retryable = error.retryable === true;
  } else shown.message = $String(error);
  $host("failed", $JSON.stringify(shown));
}

const $kit = {
  __proto__: null,
  ...{ $ask, $host, $JSON, $json, $push, $apply, $keys, $isArray, $String, $Error, $TypeError },
  ...{ $charCodeAt, $startsWith, $slice },
  ...{ $hide, $defineProperty, $asBytes, $bytesToText, $textToBytes, $hasOwn, $logger, $load, $context, $part, $session },
};

return (function drive(command) {
  if (command === "next") return $nextTimer();
  if (command === "leave") return void $host("gone", "");
  if (command === "freeze") {
    for (const name of ["artifacts", "sql", "html"]) $part(name);
    $part("frozen")();
    $shares = true;
    return;
  }
  if (command === "timers") {
    try {
      $fire();
    } catch (error) {
      $failed(error);
    }
    return;
  }
  let outcome;
  $reset();
  try {
    outcome = $begin($ask("job", null));
  } catch (error) {
    return $failed(error);
  }
  $then($resolve(outcome), $finish, $failed);
});
