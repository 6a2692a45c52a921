-- 1: the daemon submitted it by schedule, and nobody decided it.
ALTER TABLE task ADD COLUMN scheduled BIGINT NOT NULL DEFAULT 0;
