// From one op to all of them: the fetch and the extraction of every page.
module.exports = function (ctx) {
  for (let page = 0; page < ctx.input.pages; page++) {
    const url = ctx.input.base + "/page/" + page;
    const fetched = ctx.emit({
      id: "fetch:" + page,
      kind: "http/fetch",
      queue: "fetch",
      input: { request: { url: url }, persistBody: true },
    });
    ctx.emit({
      id: "extract:" + page,
      kind: "js",
      queue: "extract",
      metadata: { script: "extract" },
      input: { url: url, page: page, fetched: fetched },
      dependsOn: [{ opID: fetched }],
    });
  }
};
