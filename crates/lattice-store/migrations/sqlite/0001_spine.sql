-- Times are milliseconds since 1970 UTC; ids are 16 bytes; flags are 0 and 1; nothing here reads a clock.

CREATE TABLE head (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    event_seq  INTEGER NOT NULL,
    audit_seq  INTEGER NOT NULL,
    audit_hash TEXT NOT NULL
) STRICT;
INSERT INTO head VALUES (1, 0, 0, '0000000000000000000000000000000000000000000000000000000000000000');

CREATE TABLE ops (
    op  BLOB PRIMARY KEY,
    seq INTEGER NOT NULL,
    at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    id                 BLOB NOT NULL PRIMARY KEY,
    hostname           TEXT NOT NULL,
    site               BLOB NOT NULL,
    sku                TEXT NOT NULL,
    mode               TEXT NOT NULL,
    provider_ref       TEXT,
    live               INTEGER NOT NULL,
    created_at         INTEGER NOT NULL,
    class              TEXT NOT NULL,
    status             TEXT NOT NULL,
    availability       TEXT NOT NULL,
    status_since       INTEGER NOT NULL,
    availability_since INTEGER NOT NULL,
    down_cause         TEXT,
    deadline           INTEGER,
    boot_failures      INTEGER NOT NULL,
    drain_intent       INTEGER NOT NULL,
    minor_issue        TEXT,
    identity_epoch     INTEGER NOT NULL,
    boot_id            TEXT,
    agent_version      TEXT,
    fingerprint        TEXT,
    address            TEXT,
    bmc_address        TEXT,
    owning_job         BLOB,
    hold_kinds         TEXT NOT NULL,
    held_until         INTEGER NOT NULL,
    holds              TEXT NOT NULL,
    updated_at         INTEGER NOT NULL,
    generation         INTEGER NOT NULL
) STRICT;
-- On `live`, not on `status`: these entries stay where they are while a node moves from status to status.
CREATE UNIQUE INDEX nodes_hostname ON nodes (hostname) WHERE live = 1;
CREATE UNIQUE INDEX nodes_provider_ref ON nodes (site, provider_ref)
    WHERE provider_ref IS NOT NULL AND live = 1;
-- Each list filter is served by an index that is already in the order of the list; the further columns let the
-- other filters be judged without a visit to the row.
CREATE INDEX nodes_by_status ON nodes (status, hostname, id, availability);
CREATE INDEX nodes_by_availability ON nodes (availability, hostname, id, status);
CREATE INDEX nodes_by_site ON nodes (site, hostname, id, status, availability);
CREATE INDEX nodes_by_sku ON nodes (sku, hostname, id, status, availability);
CREATE INDEX nodes_held ON nodes (hostname, id, hold_kinds) WHERE hold_kinds <> '';

CREATE TABLE node_counts (
    site         BLOB NOT NULL,
    status       TEXT NOT NULL,
    availability TEXT NOT NULL,
    n            INTEGER NOT NULL,
    PRIMARY KEY (site, status, availability)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    node                BLOB NOT NULL,
    generation          INTEGER NOT NULL,
    at                  INTEGER NOT NULL,
    action              TEXT NOT NULL,
    cause               TEXT NOT NULL,
    before_status       TEXT,
    before_availability TEXT,
    status              TEXT NOT NULL,
    availability        TEXT NOT NULL,
    actor               TEXT NOT NULL,
    detail              TEXT NOT NULL,
    PRIMARY KEY (node, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id                 BLOB NOT NULL PRIMARY KEY,
    kind               TEXT NOT NULL,
    node               BLOB NOT NULL,
    site               BLOB NOT NULL,
    batch              BLOB,
    created_at         INTEGER NOT NULL,
    hostname           TEXT NOT NULL,
    status             TEXT NOT NULL,
    stage              TEXT NOT NULL,
    attempt            INTEGER NOT NULL,
    round              INTEGER NOT NULL,
    epoch              INTEGER NOT NULL,
    fence              INTEGER NOT NULL,
    next_at            INTEGER,
    due_at             INTEGER,
    failure_class      TEXT,
    error_code         TEXT,
    error_message      TEXT,
    observed_status    TEXT,
    observed_power     TEXT,
    observed_addresses TEXT,
    observed_at        INTEGER,
    lease_holder       TEXT,
    lease_until        INTEGER,
    started_at         INTEGER,
    finished_at        INTEGER,
    updated_at         INTEGER NOT NULL,
    generation         INTEGER NOT NULL,
    body               TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_by_node ON jobs (node, id);
CREATE INDEX jobs_by_site ON jobs (site, id);
CREATE INDEX jobs_by_batch ON jobs (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX jobs_by_status ON jobs (status, id);
CREATE INDEX jobs_due ON jobs (due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE stage_events (
    job        BLOB NOT NULL,
    generation INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    stage      TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    round      INTEGER NOT NULL,
    status     TEXT NOT NULL,
    message    TEXT NOT NULL,
    PRIMARY KEY (job, generation, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX stage_runs ON stage_events (stage, at) WHERE status = 'succeeded';

CREATE TABLE sites (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    kind       TEXT NOT NULL,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT;

CREATE TABLE skus (
    name       TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT;

CREATE TABLE roce (
    site      BLOB NOT NULL,
    hostname  TEXT NOT NULL,
    interface TEXT NOT NULL,
    ipv4_cidr TEXT NOT NULL,
    PRIMARY KEY (site, hostname, interface)
) STRICT, WITHOUT ROWID;

CREATE TABLE enrollment_tokens (
    id         BLOB NOT NULL PRIMARY KEY,
    node       BLOB NOT NULL,
    job        BLOB,
    hash       TEXT NOT NULL UNIQUE,
    issued_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER,
    key_hash   TEXT,
    refreshes  INTEGER NOT NULL,
    revoked_at INTEGER,
    generation INTEGER NOT NULL
) STRICT;
CREATE INDEX enrollment_tokens_by_node ON enrollment_tokens (node, id);

CREATE TABLE api_tokens (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    issued_at  INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    generation INTEGER NOT NULL
) STRICT;

CREATE TABLE host_facts (
    node BLOB NOT NULL PRIMARY KEY,
    at   INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE provider_states (
    node         BLOB NOT NULL PRIMARY KEY,
    site         BLOB NOT NULL,
    provider_ref TEXT NOT NULL,
    status       TEXT NOT NULL,
    power        TEXT NOT NULL,
    addresses    TEXT NOT NULL,
    observed_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox (
    seq           INTEGER PRIMARY KEY,
    at            INTEGER NOT NULL,
    name          TEXT NOT NULL,
    resource_kind TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    node          BLOB,
    correlation   TEXT NOT NULL,
    payload       TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_by_node ON outbox (node, seq) WHERE node IS NOT NULL;
CREATE INDEX outbox_by_job ON outbox (resource_id, seq) WHERE resource_kind = 'job';

CREATE TABLE audit (
    seq           INTEGER PRIMARY KEY,
    at            INTEGER NOT NULL,
    actor         TEXT NOT NULL,
    role          TEXT NOT NULL,
    action        TEXT NOT NULL,
    resource_kind TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    reason        TEXT NOT NULL,
    before_json   TEXT NOT NULL,
    after_json    TEXT NOT NULL,
    result        TEXT NOT NULL,
    correlation   TEXT NOT NULL,
    hash          TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_resource ON audit (resource_kind, resource_id, seq);

CREATE TABLE leases (
    name   TEXT NOT NULL PRIMARY KEY,
    holder TEXT,
    epoch  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
