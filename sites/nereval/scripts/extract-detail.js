"use strict";

var html = require("html");
var cells = require("./lib/cells.js");
var ops = require("./lib/ops.js");
var store = require("./lib/store.js");

var OWNERS = ["Owner", "Owner2", "Owner3"];
var MAIL = ["Address", "Address2", "Address3"];

function filled(pairs, labels) {
  return labels
    .map(function (label) {
      return pairs[label];
    })
    .filter(Boolean);
}

function assessments(doc, now) {
  var rows = (doc.table("#PriorInformation_GridView2") || []).map(function (prior) {
    return [
      Number(prior["Fiscal Year"]),
      cells.number(prior["Land Value"]),
      cells.number(prior["Building Value"]),
      cells.number(prior["Outbuilding Value"]),
      cells.number(prior["Total Value"]),
    ];
  });
  rows.push([
    Number(now["Fiscal Year"]),
    cells.number(now.Land),
    cells.number(now.Building),
    cells.number(now.Outbuilding),
    cells.number(now["Parcel Total"]),
  ]);
  return rows;
}

// A vacant lot has the table, with nothing in it.
function buildings(doc) {
  var building = cells.pairs(doc, "#BuildingInformation_Building");
  if (building === null || building.Design === null) return [];
  return [
    [
      building.Design,
      cells.number(building["Year Built"]),
      building.Heat,
      cells.number(building["# Rooms"]),
      cells.number(building["# Bedrooms"]),
      cells.number(building["# Bathrooms"]),
      cells.number(building["Above Grade Living Area"]),
    ],
  ];
}

function sales(doc) {
  return (doc.table("#SaleInformation_Sales") || []).map(function (sale) {
    return [
      cells.date(sale["Sale Date"]),
      cells.number(sale["Sale Price"]),
      cells.text(sale["Legal Reference"]),
      cells.text(sale.Instrument),
    ];
  });
}

function subAreas(doc) {
  return (doc.table("#SubArea_SubArea") || []).map(function (area) {
    return [area["Sub Area"], cells.number(area["Net Area"])];
  });
}

module.exports = function (ctx) {
  var input = ctx.input;
  var doc = html.parse(ops.body(ctx));
  var parcel = cells.pairs(doc, "#ParcelID_ParcelID");
  var value = cells.pairs(doc, "#Assessment_Assessment");
  var place = cells.pairs(doc, "#LocationOwner_Location");
  var land = cells.pairs(doc, "#LandInformation_Land");
  if (parcel === null || parcel["Account #"] !== input.account) return ops.unexpected(ctx, "account " + input.account);
  if (value === null || place === null || land === null) return ops.unexpected(ctx, "assessment, location or land");

  var id = store.property(input.town, input.account, parcel["State Code"], Number(parcel.Card));
  store.replace("owners", id, filled(place, OWNERS).map(function (name) {
    return [name];
  }));
  store.replace("mailing_lines", id, filled(place, MAIL).map(function (line) {
    return [line];
  }));
  store.replace("assessments", id, assessments(doc, value));
  store.replace("buildings", id, buildings(doc));
  store.replace("sales", id, sales(doc));
  store.replace("sub_areas", id, subAreas(doc));
  store.replace("land", id, [[cells.number(land["Land Area"]), land.Neighborhood]]);
  ctx.writeRecord("properties", input.town + "/" + input.account, { location: place.Location, listPage: input.listPage });
  return { data: { account: input.account, property: id } };
};
