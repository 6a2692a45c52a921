-- Two CAs may give the same serial number: a certificate is known by the SHA-256 of itself. One of before has its serial there.
ALTER TABLE certificate ADD COLUMN fingerprint TEXT COLLATE "C";
-- The CA's name, for people; empty where it was not kept.
ALTER TABLE certificate ADD COLUMN issuer TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE certificate SET fingerprint = serial;
ALTER TABLE certificate DROP CONSTRAINT certificate_pkey;
ALTER TABLE certificate ADD PRIMARY KEY (fingerprint);
CREATE INDEX certificate_by_time ON certificate (issued_at_s, fingerprint);
CREATE INDEX certificate_by_node ON certificate (node_id, issued_at_s, fingerprint);
CREATE INDEX certificate_revoked ON certificate (fingerprint) WHERE revoked_at_s IS NOT NULL;
