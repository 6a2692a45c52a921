-- Which of several gateways says so; empty: the site.
ALTER TABLE alert ADD COLUMN instance TEXT COLLATE "C" NOT NULL DEFAULT '';
-- When it last did, UNIX milliseconds: what a gateway that is gone has said, ends.
ALTER TABLE alert ADD COLUMN seen_ms BIGINT NOT NULL DEFAULT 0;
