CREATE TABLE stories (
  id INTEGER PRIMARY KEY,
  title TEXT NOT NULL,
  url TEXT NOT NULL,
  source TEXT,
  department TEXT,
  author TEXT NOT NULL,
  posted_at TEXT NOT NULL,
  comments INTEGER,
  topic TEXT NOT NULL,
  page INTEGER NOT NULL
);

CREATE TABLE topics (
  topic TEXT PRIMARY KEY,
  stories INTEGER NOT NULL,
  comments INTEGER NOT NULL
);
