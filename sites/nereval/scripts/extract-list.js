"use strict";

var html = require("html");
var db = require("site-db");
var engine = require("scraper-db");
var ops = require("./lib/ops.js");

var GRID = "#PropertyList_GridView1";
var POST_BACK = /__doPostBack\('([^']*)','(Page\$Next)'\)/;

function upsert(town, property) {
  db.exec(
    "INSERT INTO properties (town, account, map_lot, location, url) VALUES (?, ?, ?, ?, ?)" +
      " ON CONFLICT (town, account) DO UPDATE SET map_lot = excluded.map_lot, location = excluded.location," +
      " url = excluded.url",
    [town, property.account, property.mapLot, property.location, property.url]
  );
}

// Whether an earlier list page of this workflow had the property: one with two owners is listed twice.
function isKnown(ctx, account) {
  var found = engine.query(
    "SELECT id FROM ops WHERE workflow_id = ? AND id = ? LIMIT 1",
    ctx.workflow.id,
    ops.detailID(account)
  );
  return found.length > 0;
}

// The properties of the grid, each once, and how many rows there are.
function listed(grid, url) {
  var byAccount = {};
  var accounts = [];
  var rows = 0;
  grid.css("tr").forEach(function (row) {
    var link = row.first("a[href*='PropertyDetail.aspx']");
    if (link === null) return;
    rows += 1;
    var target = html.resolve(url, link.attr("href"));
    var account = decodeURIComponent(/[?&]accountnumber=([^&]*)/.exec(target)[1]);
    if (byAccount[account] !== undefined) return;
    var cells = row.css("td");
    byAccount[account] = { account: account, url: target, mapLot: cells[1].text(), location: cells[3].text() };
    accounts.push(account);
  });
  return {
    rows: rows,
    properties: accounts.map(function (account) {
      return byAccount[account];
    }),
  };
}

// The request for the page after this one; null on the last.
function nextPage(doc, grid, url) {
  var links = grid.css("a[href^='javascript:']");
  for (var i = 0; i < links.length; i++) {
    var click = POST_BACK.exec(links[i].attr("href"));
    if (click) {
      var form = doc.form("form");
      return ops.postBack(html.resolve(url, form.action), form, click[1], click[2]);
    }
  }
  return null;
}

module.exports = function (ctx) {
  var input = ctx.input;
  var doc = html.parse(ops.body(ctx));
  var grid = doc.first(GRID);
  if (grid === null) return ops.unexpected(ctx, "property list");

  var found = listed(grid, input.url);
  var fresh = found.properties.filter(function (property) {
    return !isKnown(ctx, property.account);
  });
  fresh.forEach(function (property) {
    upsert(input.town, property);
    ops.detailPage(ctx, property, input.page);
  });

  var next = input.page < input.maxPages ? nextPage(doc, grid, input.url) : null;
  if (next) ops.listPage(ctx, input, input.page + 1, next);
  ctx.log("page", input.page, "of", input.town, "lists", found.rows, "rows");
  return { data: { page: input.page, rows: found.rows, details: fresh.length, next: next !== null } };
};
