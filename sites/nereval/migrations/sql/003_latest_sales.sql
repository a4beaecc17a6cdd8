CREATE INDEX sales_by_day ON sales (sold_on);

CREATE VIEW latest_sales AS
  SELECT p.town, p.account, p.location, max(s.sold_on) AS sold_on, s.price
  FROM sales s JOIN properties p ON p.id = s.property_id
  WHERE s.sold_on IS NOT NULL
  GROUP BY p.id;
