-- Typed tasks of nodes. Signed when they are delivered; what is signed stands here, so that the hash stays the same.
CREATE TABLE task (
    cluster_id     TEXT COLLATE "C" NOT NULL,
    task_id        TEXT COLLATE "C" NOT NULL,
    node_id        TEXT COLLATE "C" NOT NULL,
    kind           TEXT COLLATE "C" NOT NULL,
    params         TEXT COLLATE "C" NOT NULL,
    nonce          BYTEA NOT NULL,
    -- SHA-256 of the bytes that are signed.
    hash           BYTEA NOT NULL,
    submitted_by   TEXT COLLATE "C" NOT NULL,
    issued_at_s    BIGINT NOT NULL,
    expires_at_s   BIGINT NOT NULL,
    submitted_ms   BIGINT NOT NULL,
    approval       TEXT COLLATE "C" NOT NULL CHECK (approval IN ('none', 'waiting', 'given')),
    approved_by    TEXT COLLATE "C",
    state          TEXT COLLATE "C" NOT NULL CHECK (state IN ('queued', 'dispatched', 'running', 'completed', 'failed', 'expired', 'cancelled')),
    attempts       BIGINT NOT NULL DEFAULT 0,
    -- Without word of the node until then it is delivered again.
    lease_until_ms BIGINT,
    dispatched_ms  BIGINT,
    began_ms       BIGINT,
    ended_ms       BIGINT,
    cancelled_by   TEXT COLLATE "C",
    -- When the node was last told that it is taken back.
    cancel_told_ms BIGINT,
    phase          TEXT COLLATE "C",
    code           TEXT COLLATE "C",
    detail         TEXT COLLATE "C",
    -- The node's signed result, as it came.
    result         TEXT COLLATE "C",
    -- The agent's key that signed it.
    result_key     TEXT COLLATE "C",
    PRIMARY KEY (cluster_id, task_id)
);
CREATE INDEX task_node ON task (cluster_id, node_id, state);
CREATE INDEX task_state ON task (state, lease_until_ms);

-- How far tasks are and were.
CREATE TABLE task_progress (
    cluster_id  TEXT COLLATE "C" NOT NULL,
    task_id     TEXT COLLATE "C" NOT NULL,
    n           BIGINT NOT NULL,
    phase       TEXT COLLATE "C" NOT NULL,
    message     TEXT COLLATE "C",
    -- By the node's clock.
    at          TEXT COLLATE "C" NOT NULL,
    received_ms BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, task_id, n)
);

-- Rotations of task keys, each signed by the key before.
CREATE TABLE task_key_rotation (
    cluster_id TEXT COLLATE "C" NOT NULL,
    n          BIGINT NOT NULL,
    old_key    TEXT COLLATE "C" NOT NULL,
    new_key    TEXT COLLATE "C" NOT NULL,
    signature  TEXT COLLATE "C" NOT NULL,
    rotated_ms BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, n)
);
