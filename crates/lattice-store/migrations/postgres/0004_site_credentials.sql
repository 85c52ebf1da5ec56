-- What is known of the credentials of sites: paths and dates, never a value.
CREATE TABLE site_credentials (
    site         UUID NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    path         TEXT COLLATE "C" NOT NULL,
    set_at       BIGINT,
    set_by       TEXT COLLATE "C",
    validated_at BIGINT,
    problem      TEXT COLLATE "C",
    generation   BIGINT NOT NULL,
    PRIMARY KEY (site, name)
);
