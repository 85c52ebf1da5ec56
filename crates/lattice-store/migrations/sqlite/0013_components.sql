-- What State Manager said of each node's component last, and what it was told.
CREATE TABLE components (
    node      BLOB NOT NULL PRIMARY KEY,
    site      BLOB NOT NULL,
    body      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX components_of_site ON components (site, node);
