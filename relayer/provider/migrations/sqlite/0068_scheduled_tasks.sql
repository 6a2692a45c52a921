-- 1: the daemon submitted it by schedule, and nobody decided it.
ALTER TABLE task ADD COLUMN scheduled INTEGER NOT NULL DEFAULT 0;
