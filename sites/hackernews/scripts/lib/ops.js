// Each page is two ops: its fetch, and the extraction that waits for it.
const retry = { maxAttempts: 5, backoffKind: "exponential", initialBackoff: "500ms", maxBackoff: "30s", jitter: 0.2 };

// Emits both ops of a page; the id of its extraction.
exports.page = (ctx, url, number, maxPages) => {
  const fetchOpID = ctx.emit({
    id: `fetch:${number}`,
    kind: "http/fetch",
    queue: "fetch",
    dedupKey: url,
    retry,
    input: { request: { url }, persistBody: true },
  });
  return ctx.emit({
    id: `extract:${number}`,
    kind: "js",
    queue: "extract",
    metadata: { script: "extract.js" },
    input: { url, page: number, maxPages, fetchOpID },
    dependsOn: [{ opID: fetchOpID }],
  });
};

exports.firstPage = (ctx, baseURL, maxPages) => exports.page(ctx, `${baseURL.replace(/\/+$/, "")}/`, 1, maxPages);

exports.body = (ctx) =>
  ctx.dep(ctx.input.fetchOpID).artifacts.find((artifact) => artifact.kind === "http-response-body").bodyText;
