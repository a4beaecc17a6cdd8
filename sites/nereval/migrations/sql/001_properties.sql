CREATE TABLE properties (
  id INTEGER PRIMARY KEY,
  town TEXT NOT NULL,
  account TEXT NOT NULL,
  map_lot TEXT NOT NULL,
  location TEXT NOT NULL,
  url TEXT NOT NULL,
  state_code TEXT,
  card INTEGER,
  UNIQUE (town, account)
);

-- What hangs on a property is numbered in the order of its page.
CREATE TABLE owners (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE mailing_lines (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE assessments (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  fiscal_year INTEGER NOT NULL,
  land INTEGER,
  building INTEGER,
  outbuilding INTEGER,
  total INTEGER NOT NULL,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE buildings (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  design TEXT NOT NULL,
  year_built INTEGER,
  heat TEXT,
  rooms INTEGER,
  bedrooms INTEGER,
  bathrooms REAL,
  living_area INTEGER,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE sales (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  sale_date TEXT,
  price INTEGER,
  legal_reference TEXT,
  instrument TEXT,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE sub_areas (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  name TEXT NOT NULL,
  area INTEGER,
  PRIMARY KEY (property_id, number)
);

CREATE TABLE land (
  property_id INTEGER NOT NULL REFERENCES properties (id),
  number INTEGER NOT NULL,
  area INTEGER,
  neighborhood TEXT,
  PRIMARY KEY (property_id, number)
);
