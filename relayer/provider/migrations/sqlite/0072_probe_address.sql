-- The address that a node wants peers to probe it at. NULL: the one that it reports from.
ALTER TABLE contact ADD COLUMN probe_address TEXT;
