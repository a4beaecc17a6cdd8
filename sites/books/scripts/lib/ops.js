// The ops of one list page and of one item page.
const RETRY = { maxAttempts: 5, backoffKind: "exponential", initialBackoff: "200ms", maxBackoff: "5s" };

function pair(name, url, script, input) {
  const fetchID = "fetch:" + name;
  return {
    fetch: {
      id: fetchID,
      kind: "http/fetch",
      queue: "fetch",
      dedupKey: url,
      retry: RETRY,
      input: { request: { url: url }, persistBody: true },
    },
    extract: (fetched) => ({
      id: "extract:" + name,
      kind: "js",
      queue: "extract",
      metadata: { script: script },
      input: Object.assign({ url: url, fetchOpID: fetched }, input),
      dependsOn: [{ opID: fetched }],
    }),
  };
}

exports.listPage = (baseURL, number, maxPages) =>
  pair("list:" + number, baseURL + "/catalogue/page-" + number + ".html", "extract-list", {
    baseURL: baseURL,
    page: number,
    maxPages: maxPages,
  });

exports.itemPage = (url, id) => pair("item:" + id, url, "extract-item", { id: id });

exports.body = (ctx) => {
  const dep = ctx.dep(ctx.input.fetchOpID);
  if (!dep) throw new Error("no result of " + ctx.input.fetchOpID);
  return dep.artifacts.find((artifact) => artifact.kind === "http-response-body").bodyText;
};
