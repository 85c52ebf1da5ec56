-- Profiles, power-credential overrides, and RoCE assignments with rows of their own. spec: S5 3.2.1, 3.3, 3.7

CREATE TABLE site_profiles (
    id         UUID NOT NULL PRIMARY KEY,
    site       UUID NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL,
    UNIQUE (site, name)
);

CREATE TABLE power_overrides (
    id         UUID NOT NULL PRIMARY KEY,
    site       UUID NOT NULL,
    selector   TEXT COLLATE "C" NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    path       TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    UNIQUE (site, selector, value)
);

ALTER TABLE roce RENAME TO roce_before;
CREATE TABLE roce (
    id         UUID NOT NULL CONSTRAINT roce_rows_pkey PRIMARY KEY,
    site       UUID NOT NULL,
    hostname   TEXT COLLATE "C" NOT NULL,
    interface  TEXT COLLATE "C" NOT NULL,
    ipv4_cidr  TEXT COLLATE "C" NOT NULL,
    address    TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    UNIQUE (site, hostname, interface)
);
INSERT INTO roce
SELECT gen_random_uuid(), roce_before.site, hostname, interface, ipv4_cidr, split_part(ipv4_cidr, '/', 1),
    sites.updated_at, sites.updated_at, 1
FROM roce_before JOIN sites ON sites.id = roce_before.site;
DROP TABLE roce_before;
-- Not unique: within one commit two interfaces may exchange their addresses.
CREATE INDEX roce_by_address ON roce (site, address);

CREATE INDEX nodes_by_bmc ON nodes (site, bmc_address) WHERE live = 1 AND bmc_address IS NOT NULL;
