-- Users' work on nodes.
CREATE TABLE allocations (
    id           UUID NOT NULL PRIMARY KEY,
    node         UUID,
    placed       BIGINT NOT NULL,
    user_name    TEXT COLLATE "C" NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    requested_at BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    generation   BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX allocations_of_node ON allocations (node, id) WHERE node IS NOT NULL;
CREATE INDEX allocations_placed ON allocations (node) WHERE placed = 1;
CREATE INDEX allocations_by_status ON allocations (status, requested_at, id);
CREATE INDEX allocations_of_user ON allocations (user_name, id);
-- To whom a node belongs while something is allocated on it.
ALTER TABLE nodes ADD COLUMN ownership TEXT NOT NULL DEFAULT '{"epoch":0,"allocations":0,"gpus":0}';
