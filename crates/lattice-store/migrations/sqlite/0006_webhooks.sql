-- Who gets events by HTTP. Keys are in the secret store.
CREATE TABLE webhooks (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    status     TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT;
-- How far each is: apart from its row, which operators change.
CREATE TABLE webhook_progress (
    webhook    BLOB NOT NULL PRIMARY KEY,
    cursor     INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- The last deliveries of each, in a ring.
CREATE TABLE webhook_deliveries (
    webhook BLOB NOT NULL,
    place   INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (webhook, place)
) STRICT, WITHOUT ROWID;
