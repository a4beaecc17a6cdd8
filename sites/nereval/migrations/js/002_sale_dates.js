"use strict";

// Sales kept the date as the page prints it, month first, which neither sorts nor compares.
module.exports = function (m) {
  m.exec("ALTER TABLE sales ADD COLUMN sold_on TEXT");
  m.query("SELECT property_id, number, sale_date FROM sales WHERE sale_date IS NOT NULL").forEach(function (sale) {
    var parts = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(sale.sale_date);
    if (!parts) return;
    var day = parts[3] + "-" + ("0" + parts[1]).slice(-2) + "-" + ("0" + parts[2]).slice(-2);
    m.exec("UPDATE sales SET sold_on = ? WHERE property_id = ? AND number = ?", day, sale.property_id, sale.number);
  });
  m.exec("ALTER TABLE sales DROP COLUMN sale_date");
};
