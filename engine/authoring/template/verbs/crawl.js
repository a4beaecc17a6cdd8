__verb__("crawl", {
  short: "Fetch the list and keep every item",
  fields: {
    base_url: { type: "string", default: "https://{{name}}.example", help: "Where the site is" },
  },
});

/** @param {VerbContext} ctx */
function crawl(ctx) {
  const url = `${ctx.values.base_url}/items`;
  const fetched = ctx.emit({
    id: "fetch:items",
    kind: "http/fetch",
    queue: "fetch",
    retry: { maxAttempts: 5, backoffKind: "exponential", initialBackoff: "1s", maxBackoff: "1m" },
    input: { request: { url }, persistBody: true },
  });
  const extracted = ctx.emit({
    id: "extract:items",
    kind: "js",
    metadata: { script: "extract-items" },
    input: { url, fetchOpID: fetched },
    dependsOn: [{ opID: fetched }],
  });
  ctx.setTargetOpID(extracted);
}
