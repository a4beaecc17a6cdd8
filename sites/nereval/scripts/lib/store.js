"use strict";

var db = require("site-db");

// The columns of each table that hangs on a property, after `property_id` and `number`.
var COLUMNS = {
  owners: ["name"],
  mailing_lines: ["text"],
  assessments: ["fiscal_year", "land", "building", "outbuilding", "total"],
  buildings: ["design", "year_built", "heat", "rooms", "bedrooms", "bathrooms", "living_area"],
  sales: ["sold_on", "price", "legal_reference", "instrument"],
  sub_areas: ["name", "area"],
  land: ["area", "neighborhood"],
};

// Completes the row that the list page made; its id.
exports.property = function (town, account, stateCode, card) {
  db.exec("UPDATE properties SET state_code = ?, card = ? WHERE town = ? AND account = ?", stateCode, card, town, account);
  return db.query("SELECT id FROM properties WHERE town = ? AND account = ?", town, account)[0].id;
};

// What the page shows stands in place of what was there: the rows have no key of their own.
exports.replace = function (table, propertyID, rows) {
  var columns = ["property_id", "number"].concat(COLUMNS[table]);
  var marks = columns.map(function () {
    return "?";
  });
  db.exec("DELETE FROM " + table + " WHERE property_id = ?", propertyID);
  rows.forEach(function (row, i) {
    db.exec(
      "INSERT INTO " + table + " (" + columns.join(", ") + ") VALUES (" + marks.join(", ") + ")",
      [propertyID, i + 1].concat(row)
    );
  });
};
