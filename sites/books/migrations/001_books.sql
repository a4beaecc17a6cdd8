CREATE TABLE books (
  id TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  category TEXT NOT NULL,
  price REAL NOT NULL,
  stock INTEGER NOT NULL,
  rating INTEGER NOT NULL,
  url TEXT NOT NULL
);

-- Counters that would show an item written twice.
CREATE TABLE visits (name TEXT PRIMARY KEY, n INTEGER NOT NULL);
INSERT INTO visits (name, n) VALUES ('item', 0);
CREATE TABLE item_visits (id TEXT PRIMARY KEY, n INTEGER NOT NULL);

CREATE VIEW categories AS
  SELECT category, count(*) AS books, round(avg(price), 2) AS average_price FROM books GROUP BY category;
