-- Who gets events by HTTP. Keys are in the secret store.
CREATE TABLE webhooks (
    id         UUID NOT NULL PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    status     TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT NOT NULL
);
-- How far each is: apart from its row, which operators change.
CREATE TABLE webhook_progress (
    webhook    UUID NOT NULL PRIMARY KEY,
    cursor     BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT NOT NULL
);
-- The last deliveries of each, in a ring.
CREATE TABLE webhook_deliveries (
    webhook UUID NOT NULL,
    place   BIGINT NOT NULL,
    number  BIGINT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (webhook, place)
);
