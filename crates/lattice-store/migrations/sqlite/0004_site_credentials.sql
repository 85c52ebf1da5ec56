-- What is known of the credentials of sites: paths and dates, never a value.
CREATE TABLE site_credentials (
    site         BLOB NOT NULL,
    name         TEXT NOT NULL,
    path         TEXT NOT NULL,
    set_at       INTEGER,
    set_by       TEXT,
    validated_at INTEGER,
    problem      TEXT,
    generation   INTEGER NOT NULL,
    PRIMARY KEY (site, name)
) STRICT, WITHOUT ROWID;
