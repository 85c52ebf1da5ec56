-- What agents are asked to do.
CREATE TABLE tasks (
    id           UUID NOT NULL PRIMARY KEY,
    node         UUID NOT NULL,
    job          UUID,
    allocation   UUID,
    key          TEXT NOT NULL,
    kind         TEXT NOT NULL,
    status       TEXT NOT NULL,
    due_at       BIGINT,
    delivered_at BIGINT,
    finished_at  BIGINT,
    updated_at   BIGINT NOT NULL,
    generation   BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE UNIQUE INDEX task_keys ON tasks (key);
CREATE INDEX tasks_of_node ON tasks (node, id);
CREATE INDEX tasks_of_job ON tasks (job, id) WHERE job IS NOT NULL;
CREATE INDEX tasks_of_allocation ON tasks (allocation, id) WHERE allocation IS NOT NULL;
-- Those that are not over: what waits for a node, and what is given up next.
CREATE INDEX tasks_open ON tasks (node, id) WHERE finished_at IS NULL;
CREATE INDEX tasks_due ON tasks (due_at) WHERE finished_at IS NULL;
