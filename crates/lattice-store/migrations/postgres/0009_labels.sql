-- Since when a node's fingerprint is none of the approved ones, and what operators say of it.
ALTER TABLE nodes ADD COLUMN deviates_since BIGINT;
ALTER TABLE nodes ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
