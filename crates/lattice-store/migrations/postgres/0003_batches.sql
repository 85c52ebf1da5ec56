CREATE TABLE batches (
    id          UUID NOT NULL PRIMARY KEY,
    site        UUID NOT NULL,
    status      TEXT NOT NULL,
    control     TEXT NOT NULL,
    machines    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    finished_at BIGINT,
    updated_at  BIGINT NOT NULL,
    generation  BIGINT NOT NULL,
    body        TEXT NOT NULL
);
-- Those that are not over, the oldest first: who gives permits looks at nothing else.
CREATE INDEX batches_live ON batches (id) WHERE finished_at IS NULL;

-- Counts of a batch's children, and the next one to start, without a visit to their rows.
CREATE INDEX jobs_of_batch ON jobs (batch, status, stage, id) WHERE batch IS NOT NULL;
-- Who holds the permits of a site.
CREATE INDEX jobs_moving ON jobs (site, kind, batch) WHERE status IN ('running', 'compensating');
-- Stages that had nothing to do: they take no time.
CREATE INDEX stage_skips ON stage_events (stage, at) WHERE status = 'skipped';
