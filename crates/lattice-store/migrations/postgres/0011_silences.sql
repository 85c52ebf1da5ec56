-- What raises no attention for a while.
CREATE TABLE silences (
    id         UUID NOT NULL PRIMARY KEY,
    until      BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT NOT NULL
);
