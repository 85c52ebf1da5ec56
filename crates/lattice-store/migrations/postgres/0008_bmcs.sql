-- BMCs of nodes: what was set, never a login; and what was seen last.
CREATE TABLE bmcs (
    node       UUID NOT NULL PRIMARY KEY,
    site       UUID NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT NOT NULL
);
CREATE TABLE bmc_reports (
    node      UUID NOT NULL PRIMARY KEY,
    looked_at BIGINT NOT NULL,
    body      TEXT NOT NULL
);
