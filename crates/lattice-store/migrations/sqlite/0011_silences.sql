-- What raises no attention for a while.
CREATE TABLE silences (
    id         BLOB NOT NULL PRIMARY KEY,
    until      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
