-- Every privileged act, hash-chained: each row's digest covers the digest of the row before.
CREATE TABLE audit (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT NOT NULL,
    role     TEXT NOT NULL,
    via      TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,
    result   TEXT NOT NULL,
    detail   TEXT NOT NULL,
    previous BLOB NOT NULL,
    digest   BLOB NOT NULL
) STRICT;
-- Against slips only; against intent there are the digests and their anchors on chain.
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- Where the log ends.
CREATE TABLE audit_head (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    seq    INTEGER NOT NULL,
    digest BLOB NOT NULL
) STRICT;
INSERT INTO audit_head (one, seq, digest) VALUES (1, 0, zeroblob(32));

-- Heads that the daemon has anchored on chain, the newest of each cluster.
CREATE TABLE audit_anchor (
    cluster_id TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    digest     BLOB NOT NULL,
    tx         TEXT NOT NULL,
    at_s       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Credentials of the admin listener; never the secrets, only their SHA-256.
CREATE TABLE admin_token (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    secret       BLOB NOT NULL,
    created_by   TEXT NOT NULL,
    created_at_s INTEGER NOT NULL,
    expires_at_s INTEGER NOT NULL,
    revoked_at_s INTEGER
) STRICT, WITHOUT ROWID;
