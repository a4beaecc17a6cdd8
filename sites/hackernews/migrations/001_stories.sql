-- A job post has no points, author or comments; a text post has no site.
CREATE TABLE stories (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  title TEXT NOT NULL,
  url TEXT NOT NULL,
  site TEXT,
  points INTEGER,
  author TEXT,
  comments INTEGER,
  page INTEGER NOT NULL
);
