"use strict";

// Each page is two ops: its fetch, and the extraction that waits for it.
var RETRY = { maxAttempts: 4, backoffKind: "exponential", initialBackoff: "500ms", maxBackoff: "30s" };

function pair(ctx, name, script, request, input) {
  input.url = request.url;
  input.fetchOpID = ctx.emit({
    id: "fetch:" + name,
    kind: "http/fetch",
    queue: "fetch",
    retry: RETRY,
    input: { request: request, persistBody: true },
  });
  return ctx.emit({
    id: "extract:" + name,
    kind: "js",
    queue: "extract",
    metadata: { script: script },
    input: input,
    dependsOn: [{ opID: input.fetchOpID, required: true }],
  });
}

// What a page says may look like a template of http/fetch.
function literal(text) {
  return text.split("{{").join('{{"{{"}}');
}

exports.listPage = function (ctx, crawl, page, request) {
  return pair(ctx, "list:" + page, "extract-list.js", request, {
    baseURL: crawl.baseURL,
    town: crawl.town,
    maxPages: crawl.maxPages,
    page: page,
  });
};

exports.detailID = function (account) {
  return "extract:detail:" + account;
};

exports.detailPage = function (ctx, property, page) {
  return pair(ctx, "detail:" + property.account, "extract-detail.js", { method: "GET", url: literal(property.url) }, {
    town: ctx.input.town,
    account: property.account,
    listPage: page,
  });
};

// The request a browser makes for a __doPostBack: the page's form as it stands, and what was clicked.
exports.postBack = function (url, form, target, argument) {
  var fields = {};
  Object.keys(form.values).forEach(function (name) {
    fields[name] = literal(form.values[name]);
  });
  fields.__EVENTTARGET = target;
  fields.__EVENTARGUMENT = argument;
  return { method: "POST", url: literal(url), form: fields };
};

// The page the op waited for.
exports.body = function (ctx) {
  var found = ctx.dep(ctx.input.fetchOpID).artifacts.filter(function (artifact) {
    return artifact.kind === "http-response-body";
  });
  return found[0].bodyText;
};

exports.unexpected = function (ctx, missing) {
  return {
    error: {
      code: "unexpected_page",
      message: ctx.input.url + " has no " + missing,
      retryable: false,
      details: { url: ctx.input.url, missing: missing },
    },
  };
};
