CREATE TABLE items (
  id TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  price REAL,
  url TEXT
);
