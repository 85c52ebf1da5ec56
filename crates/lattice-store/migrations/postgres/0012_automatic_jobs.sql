-- Whether Lattice itself asked for a job: what the governor counts.
ALTER TABLE jobs ADD COLUMN automatic BIGINT NOT NULL DEFAULT 0;
UPDATE jobs SET automatic = 1 WHERE body LIKE '%"requested_by":{"name":"%","role":"system"}%';
