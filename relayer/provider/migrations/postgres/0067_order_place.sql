-- Orders of the same second are told as they were given.
ALTER TABLE command ADD COLUMN place BIGINT NOT NULL DEFAULT 0;
CREATE INDEX command_place ON command (place);
