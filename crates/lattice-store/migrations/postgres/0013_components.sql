-- What State Manager said of each node's component last, and what it was told.
CREATE TABLE components (
    node      UUID NOT NULL PRIMARY KEY,
    site      UUID NOT NULL,
    body      TEXT NOT NULL
);
CREATE INDEX components_of_site ON components (site, node);
