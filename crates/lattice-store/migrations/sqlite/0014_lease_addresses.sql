-- Where the holder of a lease is reached by those who ask another server.
ALTER TABLE leases ADD COLUMN address TEXT;
