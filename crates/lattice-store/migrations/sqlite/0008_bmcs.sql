-- BMCs of nodes: what was set, never a login; and what was seen last.
CREATE TABLE bmcs (
    node       BLOB NOT NULL PRIMARY KEY,
    site       BLOB NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE bmc_reports (
    node      BLOB NOT NULL PRIMARY KEY,
    looked_at INTEGER NOT NULL,
    body      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
