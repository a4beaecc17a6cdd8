"use strict";

// What the cells of an assessor's tables say: texts, amounts, dates, and pairs of label and value.
function text(cell) {
  return cell === undefined || cell === "" ? null : cell;
}

exports.text = text;

// "$1,234", "5,227 SF", "1.5"; null where there is no digit.
exports.number = function (cell) {
  var digits = (cell || "").replace(/[^0-9.]/g, "");
  return digits === "" ? null : Number(digits);
};

// "7/4/2019" as "2019-07-04"; null where there is no date.
exports.date = function (cell) {
  var parts = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(cell || "");
  return parts ? parts[3] + "-" + ("0" + parts[1]).slice(-2) + "-" + ("0" + parts[2]).slice(-2) : null;
};

// A table whose cells are label, value, label, value; null where the page has no such table.
exports.pairs = function (doc, selector) {
  var table = doc.first(selector);
  if (table === null) return null;
  var found = {};
  var cells = table.css("td");
  for (var i = 0; i + 1 < cells.length; i += 2) {
    found[cells[i].text().replace(/:$/, "")] = text(cells[i + 1].text());
  }
  return found;
};
