-- Certificates of wiped devices; a row never changes.
CREATE TABLE wipe_certificates (
    id           UUID NOT NULL PRIMARY KEY,
    node         UUID NOT NULL,
    job          UUID NOT NULL,
    device       TEXT NOT NULL,
    serial       TEXT NOT NULL,
    confirmed_at BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX wipe_certificates_of_node ON wipe_certificates (node, id);
CREATE INDEX wipe_certificates_of_serial ON wipe_certificates (serial, id);
