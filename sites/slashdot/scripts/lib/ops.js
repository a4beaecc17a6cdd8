// Each page is two ops: its fetch, and the extraction that waits for it.
const retry = { maxAttempts: 5, backoffKind: "exponential", initialBackoff: "500ms", maxBackoff: "30s", jitter: 0.2 };

// Emits both ops of a page, counted from 0; the id of its extraction.
exports.page = (ctx, baseURL, number, more = {}) => {
  const url = baseURL.replace(/\/+$/, "") + (number === 0 ? "/" : `/?page=${number}`);
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
    input: { baseURL, url, page: number, fetchOpID, ...more },
    dependsOn: [{ opID: fetchOpID }],
  });
};

// Emits the op that runs once every extraction has ended, well or not.
exports.summary = (ctx, extracts) =>
  ctx.emit({
    id: "summary",
    kind: "js",
    queue: "extract",
    metadata: { script: "summarise.js" },
    input: { extracts },
    dependsOn: extracts.map((opID) => ({ opID, required: false })),
  });

exports.body = (ctx) =>
  ctx.dep(ctx.input.fetchOpID).artifacts.find((artifact) => artifact.kind === "http-response-body").bodyText;
