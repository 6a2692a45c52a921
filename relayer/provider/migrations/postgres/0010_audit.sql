-- Every privileged act, hash-chained: each row's digest covers the digest of the row before.
CREATE TABLE audit (
    seq      BIGINT PRIMARY KEY,
    at       BIGINT NOT NULL,
    actor    TEXT COLLATE "C" NOT NULL,
    role     TEXT COLLATE "C" NOT NULL,
    via      TEXT COLLATE "C" NOT NULL,
    action   TEXT COLLATE "C" NOT NULL,
    target   TEXT COLLATE "C" NOT NULL,
    result   TEXT COLLATE "C" NOT NULL,
    detail   TEXT COLLATE "C" NOT NULL,
    previous BYTEA NOT NULL,
    digest   BYTEA NOT NULL
);
-- Against slips only; against intent there are the digests and their anchors on chain.
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Where the log ends.
CREATE TABLE audit_head (
    one    BIGINT PRIMARY KEY CHECK (one = 1),
    seq    BIGINT NOT NULL,
    digest BYTEA NOT NULL
);
INSERT INTO audit_head (one, seq, digest) VALUES (1, 0, decode(repeat('00', 32), 'hex'));

-- Heads that the daemon has anchored on chain, the newest of each cluster.
CREATE TABLE audit_anchor (
    cluster_id TEXT COLLATE "C" PRIMARY KEY,
    seq        BIGINT NOT NULL,
    digest     BYTEA NOT NULL,
    tx         TEXT COLLATE "C" NOT NULL,
    at_s       BIGINT NOT NULL
);

-- Credentials of the admin listener; never the secrets, only their SHA-256.
CREATE TABLE admin_token (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    role         TEXT COLLATE "C" NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    secret       BYTEA NOT NULL,
    created_by   TEXT COLLATE "C" NOT NULL,
    created_at_s BIGINT NOT NULL,
    expires_at_s BIGINT NOT NULL,
    revoked_at_s BIGINT
);
