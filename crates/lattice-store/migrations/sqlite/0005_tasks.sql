-- What agents are asked to do.
CREATE TABLE tasks (
    id           BLOB NOT NULL PRIMARY KEY,
    node         BLOB NOT NULL,
    job          BLOB,
    allocation   BLOB,
    key          TEXT NOT NULL,
    kind         TEXT NOT NULL,
    status       TEXT NOT NULL,
    due_at       INTEGER,
    delivered_at INTEGER,
    finished_at  INTEGER,
    updated_at   INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    body         TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX task_keys ON tasks (key);
CREATE INDEX tasks_of_node ON tasks (node, id);
CREATE INDEX tasks_of_job ON tasks (job, id) WHERE job IS NOT NULL;
CREATE INDEX tasks_of_allocation ON tasks (allocation, id) WHERE allocation IS NOT NULL;
-- Those that are not over: what waits for a node, and what is given up next.
CREATE INDEX tasks_open ON tasks (node, id) WHERE finished_at IS NULL;
CREATE INDEX tasks_due ON tasks (due_at) WHERE finished_at IS NULL;
