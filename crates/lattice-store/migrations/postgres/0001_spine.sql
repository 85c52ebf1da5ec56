-- Times are milliseconds since 1970 UTC; flags are 0 and 1; nothing here reads a clock. Texts compare by their
-- bytes, as in SQLite, whatever the locale of the database is.

CREATE TABLE head (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    event_seq  BIGINT NOT NULL,
    audit_seq  BIGINT NOT NULL,
    audit_hash TEXT COLLATE "C" NOT NULL
);
INSERT INTO head VALUES (1, 0, 0, '0000000000000000000000000000000000000000000000000000000000000000');

CREATE TABLE ops (
    op  UUID PRIMARY KEY,
    seq BIGINT NOT NULL,
    at  BIGINT NOT NULL
);

CREATE TABLE nodes (
    id                 UUID NOT NULL PRIMARY KEY,
    hostname           TEXT COLLATE "C" NOT NULL,
    site               UUID NOT NULL,
    sku                TEXT COLLATE "C" NOT NULL,
    mode               TEXT COLLATE "C" NOT NULL,
    provider_ref       TEXT COLLATE "C",
    live               BIGINT NOT NULL,
    created_at         BIGINT NOT NULL,
    class              TEXT COLLATE "C" NOT NULL,
    status             TEXT COLLATE "C" NOT NULL,
    availability       TEXT COLLATE "C" NOT NULL,
    status_since       BIGINT NOT NULL,
    availability_since BIGINT NOT NULL,
    down_cause         TEXT COLLATE "C",
    deadline           BIGINT,
    boot_failures      BIGINT NOT NULL,
    drain_intent       BIGINT NOT NULL,
    minor_issue        TEXT COLLATE "C",
    identity_epoch     BIGINT NOT NULL,
    boot_id            TEXT COLLATE "C",
    agent_version      TEXT COLLATE "C",
    fingerprint        TEXT COLLATE "C",
    address            TEXT COLLATE "C",
    bmc_address        TEXT COLLATE "C",
    owning_job         UUID,
    hold_kinds         TEXT COLLATE "C" NOT NULL,
    held_until         BIGINT NOT NULL,
    holds              TEXT COLLATE "C" NOT NULL,
    updated_at         BIGINT NOT NULL,
    generation         BIGINT NOT NULL
);
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
    site         UUID NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    availability TEXT COLLATE "C" NOT NULL,
    n            BIGINT NOT NULL,
    PRIMARY KEY (site, status, availability)
);

CREATE TABLE history (
    node                UUID NOT NULL,
    generation          BIGINT NOT NULL,
    at                  BIGINT NOT NULL,
    action              TEXT COLLATE "C" NOT NULL,
    cause               TEXT COLLATE "C" NOT NULL,
    before_status       TEXT COLLATE "C",
    before_availability TEXT COLLATE "C",
    status              TEXT COLLATE "C" NOT NULL,
    availability        TEXT COLLATE "C" NOT NULL,
    actor               TEXT COLLATE "C" NOT NULL,
    detail              TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (node, generation)
);

CREATE TABLE jobs (
    id                 UUID NOT NULL PRIMARY KEY,
    kind               TEXT COLLATE "C" NOT NULL,
    node               UUID NOT NULL,
    site               UUID NOT NULL,
    batch              UUID,
    created_at         BIGINT NOT NULL,
    hostname           TEXT COLLATE "C" NOT NULL,
    status             TEXT COLLATE "C" NOT NULL,
    stage              TEXT COLLATE "C" NOT NULL,
    attempt            BIGINT NOT NULL,
    round              BIGINT NOT NULL,
    epoch              BIGINT NOT NULL,
    fence              BIGINT NOT NULL,
    next_at            BIGINT,
    due_at             BIGINT,
    failure_class      TEXT COLLATE "C",
    error_code         TEXT COLLATE "C",
    error_message      TEXT COLLATE "C",
    observed_status    TEXT COLLATE "C",
    observed_power     TEXT COLLATE "C",
    observed_addresses TEXT COLLATE "C",
    observed_at        BIGINT,
    lease_holder       TEXT COLLATE "C",
    lease_until        BIGINT,
    started_at         BIGINT,
    finished_at        BIGINT,
    updated_at         BIGINT NOT NULL,
    generation         BIGINT NOT NULL,
    body               TEXT COLLATE "C" NOT NULL
);
CREATE INDEX jobs_by_node ON jobs (node, id);
CREATE INDEX jobs_by_site ON jobs (site, id);
CREATE INDEX jobs_by_batch ON jobs (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX jobs_by_status ON jobs (status, id);
CREATE INDEX jobs_due ON jobs (due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE stage_events (
    job        UUID NOT NULL,
    generation BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    stage      TEXT COLLATE "C" NOT NULL,
    attempt    BIGINT NOT NULL,
    round      BIGINT NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    message    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job, generation, ordinal)
);
CREATE INDEX stage_runs ON stage_events (stage, at) WHERE status = 'succeeded';

CREATE TABLE sites (
    id         UUID NOT NULL PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    kind       TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);

CREATE TABLE skus (
    name       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);

CREATE TABLE roce (
    site      UUID NOT NULL,
    hostname  TEXT COLLATE "C" NOT NULL,
    interface TEXT COLLATE "C" NOT NULL,
    ipv4_cidr TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (site, hostname, interface)
);

CREATE TABLE enrollment_tokens (
    id         UUID NOT NULL PRIMARY KEY,
    node       UUID NOT NULL,
    job        UUID,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    issued_at  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT,
    key_hash   TEXT COLLATE "C",
    refreshes  BIGINT NOT NULL,
    revoked_at BIGINT,
    generation BIGINT NOT NULL
);
CREATE INDEX enrollment_tokens_by_node ON enrollment_tokens (node, id);

CREATE TABLE api_tokens (
    id         UUID NOT NULL PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    issued_at  BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    generation BIGINT NOT NULL
);

CREATE TABLE host_facts (
    node UUID NOT NULL PRIMARY KEY,
    at   BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL
);

CREATE TABLE provider_states (
    node         UUID NOT NULL PRIMARY KEY,
    site         UUID NOT NULL,
    provider_ref TEXT COLLATE "C" NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    power        TEXT COLLATE "C" NOT NULL,
    addresses    TEXT COLLATE "C" NOT NULL,
    observed_at  BIGINT NOT NULL
);

CREATE TABLE outbox (
    seq           BIGINT PRIMARY KEY,
    at            BIGINT NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    resource_kind TEXT COLLATE "C" NOT NULL,
    resource_id   TEXT COLLATE "C" NOT NULL,
    node          UUID,
    correlation   TEXT COLLATE "C" NOT NULL,
    payload       TEXT COLLATE "C" NOT NULL
);
CREATE INDEX outbox_by_node ON outbox (node, seq) WHERE node IS NOT NULL;
CREATE INDEX outbox_by_job ON outbox (resource_id, seq) WHERE resource_kind = 'job';

CREATE TABLE audit (
    seq           BIGINT PRIMARY KEY,
    at            BIGINT NOT NULL,
    actor         TEXT COLLATE "C" NOT NULL,
    role          TEXT COLLATE "C" NOT NULL,
    action        TEXT COLLATE "C" NOT NULL,
    resource_kind TEXT COLLATE "C" NOT NULL,
    resource_id   TEXT COLLATE "C" NOT NULL,
    reason        TEXT COLLATE "C" NOT NULL,
    before_json   TEXT COLLATE "C" NOT NULL,
    after_json    TEXT COLLATE "C" NOT NULL,
    result        TEXT COLLATE "C" NOT NULL,
    correlation   TEXT COLLATE "C" NOT NULL,
    hash          TEXT COLLATE "C" NOT NULL
);
CREATE INDEX audit_by_resource ON audit (resource_kind, resource_id, seq);

CREATE TABLE leases (
    name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    holder TEXT COLLATE "C",
    epoch  BIGINT NOT NULL,
    until  BIGINT NOT NULL
);
