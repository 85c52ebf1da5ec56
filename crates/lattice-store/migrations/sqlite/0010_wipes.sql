-- Certificates of wiped devices; a row never changes.
CREATE TABLE wipe_certificates (
    id           BLOB NOT NULL PRIMARY KEY,
    node         BLOB NOT NULL,
    job          BLOB NOT NULL,
    device       TEXT NOT NULL,
    serial       TEXT NOT NULL,
    confirmed_at INTEGER NOT NULL,
    body         TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX wipe_certificates_of_node ON wipe_certificates (node, id);
CREATE INDEX wipe_certificates_of_serial ON wipe_certificates (serial, id);
