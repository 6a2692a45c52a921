-- What operators decide beside the chain. `version` moves with every change; the daemon looks at it and reads anew.
CREATE TABLE control (
    one     BIGINT PRIMARY KEY CHECK (one = 1),
    version BIGINT NOT NULL,
    -- Moves when files (CA, certificates) have changed as well.
    reload  BIGINT NOT NULL
);
INSERT INTO control (one, version, reload) VALUES (1, 0, 0);

-- Nodes whose traffic is refused.
CREATE TABLE disabled (
    cluster_id    TEXT COLLATE "C" NOT NULL,
    node_id       TEXT COLLATE "C" NOT NULL,
    reason        TEXT COLLATE "C" NOT NULL,
    by            TEXT COLLATE "C" NOT NULL,
    disabled_at_s BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
);

-- Orders to nodes. Signed when they are told, so that a rotated task key signs them too.
CREATE TABLE command (
    command_id        TEXT COLLATE "C" PRIMARY KEY,
    cluster_id        TEXT COLLATE "C" NOT NULL,
    node_id           TEXT COLLATE "C" NOT NULL,
    kind              TEXT COLLATE "C" NOT NULL,
    parameters        TEXT COLLATE "C" NOT NULL,
    nonce             BYTEA NOT NULL,
    issued_by         TEXT COLLATE "C" NOT NULL,
    issued_at_s       BIGINT NOT NULL,
    deadline_s        BIGINT NOT NULL,
    state             TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'accepted', 'done', 'failed', 'refused', 'expired', 'cancelled')),
    -- When the node was first told.
    told_at_s         BIGINT,
    acknowledged_at_s BIGINT,
    code              TEXT COLLATE "C",
    detail            TEXT COLLATE "C"
);
CREATE INDEX command_node ON command (cluster_id, node_id, issued_at_s);
CREATE INDEX command_state ON command (state);

-- A certificate counts for one registration.
ALTER TABLE certificate ADD COLUMN epoch BIGINT;
ALTER TABLE certificate ADD COLUMN revoked_at_s BIGINT;
CREATE INDEX certificate_node ON certificate (cluster_id, node_id);

-- The old key's consent to the new one, and what the agent says of its probes until the node is on record.
ALTER TABLE registration ADD COLUMN registration_nonce TEXT COLLATE "C";
ALTER TABLE registration ADD COLUMN rotation_signature TEXT COLLATE "C";
-- Waits for the operator's approval.
ALTER TABLE registration ADD COLUMN held BIGINT NOT NULL DEFAULT 0;

-- Tokens for several nodes of a cluster; each use is a row of `token` that names its parent.
CREATE TABLE join_token (
    jti          TEXT COLLATE "C" PRIMARY KEY,
    cluster_id   TEXT COLLATE "C" NOT NULL,
    uses         BIGINT NOT NULL,
    -- Networks that may use it, such as 10.0.0.0/8, separated by commas; empty: any.
    ranges       TEXT COLLATE "C" NOT NULL,
    approval     BIGINT NOT NULL,
    created_at_s BIGINT NOT NULL,
    expires_at_s BIGINT NOT NULL,
    revoked_at_s BIGINT
);
ALTER TABLE token ADD COLUMN parent TEXT COLLATE "C" REFERENCES join_token (jti);
CREATE INDEX token_parent ON token (parent);
