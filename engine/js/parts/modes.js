// What is run beside the scripts of ops: verbs, migrations, and the declarations of verbs alone.
"use strict";
(function ({ $ask, $JSON, $json, $push, $apply, $String, $TypeError, $isArray, $hide, $logger, $load, $context, $part }) {
  function migrator() {
    const db = $part("sql").siteDb();
    return {
      exec: db.exec,
      query: db.query,
      hasTable: (table) => $ask("site.hasTable", $String(table)),
      hasColumn: (table, column) => $ask("site.hasColumn", [$String(table), $String(column)]),
      log: $logger("info"),
    };
  }

  function declare(recorder) {
    const record = (kind) => (...values) => void (recorder && recorder(kind, values));
    for (const name of ["__verb__", "__section__", "__package__"]) $hide(globalThis, name, record(name));
    $hide(globalThis, "doc", (first, ...values) => {
      const text = $isArray(first) && first.raw ? $String.raw(first, ...values) : $String(first);
      if (recorder) recorder("doc", [text]);
      return "";
    });
  }

  function addVerbMethods(ctx) {
    ctx.setTargetOpID = (id) => void $ask("set", ["targetOpID", $String(id)]);
    ctx.setWorkflowName = (name) => void $ask("set", ["workflowName", $String(name).trim()]);
    ctx.setWorkflowMetadata = (metadata) => void $ask("set", ["workflowMetadata", $JSON.parse($json(metadata, "metadata"))]);
    return ctx;
  }

  function verb(job, found) {
    declare(null);
    const verbs = {};
    $hide(globalThis, "__offer__", (name, value) => void (verbs[name] = value));
    const name = $JSON.stringify(job.function);
    $load(found, `;__offer__(${name}, typeof ${job.function} === "function" ? ${job.function} : undefined);`);
    if (typeof verbs[job.function] !== "function") throw new $TypeError(found.name + " has no function " + job.function);
    return $apply(verbs[job.function], undefined, [addVerbMethods($context(job))]);
  }

  function migration(job, found) {
    const exported = $load(found);
    if (typeof exported !== "function") throw new $TypeError(found.name + " must export a function");
    return $apply(exported, undefined, [migrator()]);
  }

  function scan(job, found) {
    const said = [];
    declare((kind, values) => $push(said, [kind, values]));
    $load(found);
    return said;
  }

  return { verb, migration, scan, declare };
});
