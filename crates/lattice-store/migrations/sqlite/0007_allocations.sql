-- Users' work on nodes.
CREATE TABLE allocations (
    id           BLOB NOT NULL PRIMARY KEY,
    node         BLOB,
    placed       INTEGER NOT NULL,
    user_name    TEXT NOT NULL,
    status       TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    body         TEXT NOT NULL
) STRICT;
CREATE INDEX allocations_of_node ON allocations (node, id) WHERE node IS NOT NULL;
CREATE INDEX allocations_placed ON allocations (node) WHERE placed = 1;
CREATE INDEX allocations_by_status ON allocations (status, requested_at, id);
CREATE INDEX allocations_of_user ON allocations (user_name, id);
-- To whom a node belongs while something is allocated on it.
ALTER TABLE nodes ADD COLUMN ownership TEXT NOT NULL DEFAULT '{"epoch":0,"allocations":0,"gpus":0}';
