-- What operators decide beside the chain. `version` moves with every change; the daemon looks at it and reads anew.
CREATE TABLE control (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    -- Moves when files (CA, certificates) have changed as well.
    reload  INTEGER NOT NULL
) STRICT;
INSERT INTO control (one, version, reload) VALUES (1, 0, 0);

-- Nodes whose traffic is refused.
CREATE TABLE disabled (
    cluster_id    TEXT NOT NULL,
    node_id       TEXT NOT NULL,
    reason        TEXT NOT NULL,
    by            TEXT NOT NULL,
    disabled_at_s INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;

-- Orders to nodes. Signed when they are told, so that a rotated task key signs them too.
CREATE TABLE command (
    command_id        TEXT PRIMARY KEY,
    cluster_id        TEXT NOT NULL,
    node_id           TEXT NOT NULL,
    kind              TEXT NOT NULL,
    parameters        TEXT NOT NULL,
    nonce             BLOB NOT NULL,
    issued_by         TEXT NOT NULL,
    issued_at_s       INTEGER NOT NULL,
    deadline_s        INTEGER NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('pending', 'accepted', 'done', 'failed', 'refused', 'expired', 'cancelled')),
    -- When the node was first told.
    told_at_s         INTEGER,
    acknowledged_at_s INTEGER,
    code              TEXT,
    detail            TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX command_node ON command (cluster_id, node_id, issued_at_s);
CREATE INDEX command_state ON command (state);

-- A certificate counts for one registration.
ALTER TABLE certificate ADD COLUMN epoch INTEGER;
ALTER TABLE certificate ADD COLUMN revoked_at_s INTEGER;
CREATE INDEX certificate_node ON certificate (cluster_id, node_id);

-- The old key's consent to the new one, and what the agent says of its probes until the node is on record.
ALTER TABLE registration ADD COLUMN registration_nonce TEXT;
ALTER TABLE registration ADD COLUMN rotation_signature TEXT;
-- Waits for the operator's approval.
ALTER TABLE registration ADD COLUMN held INTEGER NOT NULL DEFAULT 0;

-- Tokens for several nodes of a cluster; each use is a row of `token` that names its parent.
CREATE TABLE join_token (
    jti          TEXT PRIMARY KEY,
    cluster_id   TEXT NOT NULL,
    uses         INTEGER NOT NULL,
    -- Networks that may use it, such as 10.0.0.0/8, separated by commas; empty: any.
    ranges       TEXT NOT NULL,
    approval     INTEGER NOT NULL,
    created_at_s INTEGER NOT NULL,
    expires_at_s INTEGER NOT NULL,
    revoked_at_s INTEGER
) STRICT, WITHOUT ROWID;
ALTER TABLE token ADD COLUMN parent TEXT REFERENCES join_token (jti);
CREATE INDEX token_parent ON token (parent);
