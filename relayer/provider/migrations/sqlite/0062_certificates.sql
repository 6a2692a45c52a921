-- Two CAs may give the same serial number: a certificate is known by the SHA-256 of itself. One of before has its serial there.
CREATE TABLE certificate_of (
    fingerprint  TEXT PRIMARY KEY,
    serial       TEXT NOT NULL,
    -- The CA's name, for people; empty where it was not kept.
    issuer       TEXT NOT NULL,
    cluster_id   TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    epoch        INTEGER,
    issued_at_s  INTEGER NOT NULL,
    not_after_s  INTEGER NOT NULL,
    revoked_at_s INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO certificate_of (fingerprint, serial, issuer, cluster_id, node_id, epoch, issued_at_s, not_after_s, revoked_at_s)
SELECT serial, serial, '', cluster_id, node_id, epoch, issued_at_s, not_after_s, revoked_at_s FROM certificate;
DROP TABLE certificate;
ALTER TABLE certificate_of RENAME TO certificate;
CREATE INDEX certificate_not_after ON certificate (not_after_s);
CREATE INDEX certificate_node ON certificate (cluster_id, node_id);
CREATE INDEX certificate_by_time ON certificate (issued_at_s, fingerprint);
CREATE INDEX certificate_by_node ON certificate (node_id, issued_at_s, fingerprint);
CREATE INDEX certificate_revoked ON certificate (fingerprint) WHERE revoked_at_s IS NOT NULL;
