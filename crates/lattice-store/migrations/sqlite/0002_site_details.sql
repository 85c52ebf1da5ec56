-- Profiles, power-credential overrides, and RoCE assignments with rows of their own. spec: S5 3.2.1, 3.3, 3.7

CREATE TABLE site_profiles (
    id         BLOB NOT NULL PRIMARY KEY,
    site       BLOB NOT NULL,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL,
    UNIQUE (site, name)
) STRICT;

CREATE TABLE power_overrides (
    id         BLOB NOT NULL PRIMARY KEY,
    site       BLOB NOT NULL,
    selector   TEXT NOT NULL,
    value      TEXT NOT NULL,
    path       TEXT NOT NULL,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    UNIQUE (site, selector, value)
) STRICT;

ALTER TABLE roce RENAME TO roce_before;
CREATE TABLE roce (
    id         BLOB NOT NULL PRIMARY KEY,
    site       BLOB NOT NULL,
    hostname   TEXT NOT NULL,
    interface  TEXT NOT NULL,
    ipv4_cidr  TEXT NOT NULL,
    address    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    UNIQUE (site, hostname, interface)
) STRICT;
INSERT INTO roce
SELECT randomblob(16), roce_before.site, hostname, interface, ipv4_cidr, substr(ipv4_cidr, 1, instr(ipv4_cidr, '/') - 1),
    sites.updated_at, sites.updated_at, 1
FROM roce_before JOIN sites ON sites.id = roce_before.site;
DROP TABLE roce_before;
-- Not unique: within one commit two interfaces may exchange their addresses.
CREATE INDEX roce_by_address ON roce (site, address);

CREATE INDEX nodes_by_bmc ON nodes (site, bmc_address) WHERE live = 1 AND bmc_address IS NOT NULL;
