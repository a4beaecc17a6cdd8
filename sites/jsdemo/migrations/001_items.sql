-- `writes` counts how often an item was written: once for each workflow that made it.
CREATE TABLE items (
  prefix TEXT NOT NULL,
  number INTEGER NOT NULL,
  name TEXT NOT NULL,
  word TEXT NOT NULL,
  score REAL NOT NULL,
  workflow_id TEXT NOT NULL,
  writes INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (prefix, number)
);

CREATE TABLE summaries (
  prefix TEXT NOT NULL,
  word TEXT NOT NULL,
  items INTEGER NOT NULL,
  score REAL NOT NULL,
  PRIMARY KEY (prefix, word)
);
