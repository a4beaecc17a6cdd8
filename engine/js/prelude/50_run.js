// One execution: the context an author sees, the call, and its envelope.
function $artifactView(stored) {
  const view = {
    id: stored.id,
    name: stored.name,
    kind: stored.kind,
    contentType: stored.contentType,
    metadata: stored.metadata,
  };
  let text = stored.text;
  const charset = stored.metadata && stored.metadata.charset;
  const declared = charset ? `${stored.contentType}; charset=${charset}` : stored.contentType;
  $defineProperty(view, "bodyText", {
    enumerable: true,
    configurable: true,
    get: () => (text === undefined ? (text = $ask("text", [stored.sha256, declared])) : text),
  });
  $hide(view, "size", stored.size);
  $hide(view, "bodyBytes", () =>
    stored.sha256 === undefined ? new TextEncoder().encode(text) : $textToBytes($host("blob", stored.sha256)),
  );
  return view;
}

function $artifactSpec(spec) {
  if (spec === null || typeof spec !== "object") throw new $TypeError("writeArtifact expects an object");
  const { body, ...rest } = spec;
  if (body === undefined || body === null) throw new $TypeError("writeArtifact: the artifact has no body");
  const bytes = $asBytes(body);
  const payload = bytes === null ? { $text: $String(body) } : { $bytes: $bytesToText(bytes) };
  return $ask("artifact", [$JSON.parse($json(rest, "artifact")), payload]);
}

function $emit(spec) {
  if (spec === null || typeof spec !== "object" || $isArray(spec)) throw new $TypeError("emit expects an object");
  return $ask("emit", $JSON.parse($json(spec, "emit")));
}

function $context(job) {
  const ctx = { ...job.ctx, log: $logger("info"), emit: $emit };
  if (job.mode === "script") {
    const known = { __proto__: null };
    ctx.dep = (id) => {
      const key = $String(id);
      if (!(key in known)) {
        const found = $ask("dep", key);
        if (found !== null) found.artifacts = found.artifacts.map($artifactView);
        known[key] = found;
      }
      return known[key];
    };
    ctx.writeRecord = (collection, key, data) => {
      if (typeof collection !== "string" || collection.trim() === "") throw new $TypeError("writeRecord: the collection is blank");
      $host("record", $JSON.stringify([collection, key === undefined || key === null ? "" : $String(key), $json(data, "record")]));
    };
    ctx.writeArtifact = $artifactSpec;
  } else {
    ctx.setTargetOpID = (id) => void $ask("set", ["targetOpID", $String(id)]);
    ctx.setWorkflowName = (name) => void $ask("set", ["workflowName", $String(name).trim()]);
    ctx.setWorkflowMetadata = (metadata) => void $ask("set", ["workflowMetadata", $JSON.parse($json(metadata, "metadata"))]);
  }
  return ctx;
}

function $migration() {
  const db = $siteDb();
  return {
    exec: db.exec,
    query: db.query,
    hasTable: (table) => $ask("site.hasTable", $String(table)),
    hasColumn: (table, column) => $ask("site.hasColumn", [$String(table), $String(column)]),
    log: $logger("info"),
  };
}

function $declarations(recorder) {
  const record = (kind) => (...values) => void (recorder && recorder(kind, values));
  for (const name of ["__verb__", "__section__", "__package__"]) $hide(globalThis, name, record(name));
  $hide(globalThis, "doc", (first, ...values) => {
    const text = $isArray(first) && first.raw ? $String.raw(first, ...values) : $String(first);
    if (recorder) recorder("doc", [text]);
    return "";
  });
}

function $begin(job) {
  const found = $ask("entry", job.entry);
  switch (job.mode) {
    case "script": {
      const exported = $load(found);
      const run = typeof exported === "function" ? exported : exported && exported.default;
      if (typeof run !== "function") throw new $TypeError(found.name + " exports no function (module.exports = function (ctx) { … })");
      return $apply(run, undefined, [$context(job)]);
    }
    case "verb": {
      $declarations(null);
      const verbs = {};
      $hide(globalThis, "__offer__", (name, value) => void (verbs[name] = value));
      const name = $JSON.stringify(job.function);
      $load(found, `;__offer__(${name}, typeof ${job.function} === "function" ? ${job.function} : undefined);`);
      if (typeof verbs[job.function] !== "function") throw new $TypeError(found.name + " has no function " + job.function);
      return $apply(verbs[job.function], undefined, [$context(job)]);
    }
    case "migration": {
      const exported = $load(found);
      if (typeof exported !== "function") throw new $TypeError(found.name + " must export a function");
      return $apply(exported, undefined, [$migration()]);
    }
    case "scan": {
      const said = [];
      $declarations((kind, values) => $push(said, [kind, values]));
      $load(found);
      return said;
    }
    default:
      return $more(job, found); // from the source that the caller of execute() adds
  }
}

function $finish(value) {
  let text;
  try {
    text = $json(value === undefined ? null : value, "result");
  } catch (error) {
    return $failed(error);
  }
  $host("done", text);
}

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

return function drive(command) {
  if (command === "next") return $nextTimer();
  if (command === "timers") {
    try {
      $fire();
    } catch (error) {
      $failed(error);
    }
    return;
  }
  let outcome;
  try {
    outcome = $begin($ask("job", null));
  } catch (error) {
    return $failed(error);
  }
  $then($resolve(outcome), $finish, $failed);
};
