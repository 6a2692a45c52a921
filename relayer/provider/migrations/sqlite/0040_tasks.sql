-- Typed tasks of nodes. Signed when they are delivered; what is signed stands here, so that the hash stays the same.
CREATE TABLE task (
    cluster_id     TEXT NOT NULL,
    task_id        TEXT NOT NULL,
    node_id        TEXT NOT NULL,
    kind           TEXT NOT NULL,
    params         TEXT NOT NULL,
    nonce          BLOB NOT NULL,
    -- SHA-256 of the bytes that are signed.
    hash           BLOB NOT NULL,
    submitted_by   TEXT NOT NULL,
    issued_at_s    INTEGER NOT NULL,
    expires_at_s   INTEGER NOT NULL,
    submitted_ms   INTEGER NOT NULL,
    approval       TEXT NOT NULL CHECK (approval IN ('none', 'waiting', 'given')),
    approved_by    TEXT,
    state          TEXT NOT NULL CHECK (state IN ('queued', 'dispatched', 'running', 'completed', 'failed', 'expired', 'cancelled')),
    attempts       INTEGER NOT NULL DEFAULT 0,
    -- Without word of the node until then it is delivered again.
    lease_until_ms INTEGER,
    dispatched_ms  INTEGER,
    began_ms       INTEGER,
    ended_ms       INTEGER,
    cancelled_by   TEXT,
    -- When the node was last told that it is taken back.
    cancel_told_ms INTEGER,
    phase          TEXT,
    code           TEXT,
    detail         TEXT,
    -- The node's signed result, as it came.
    result         TEXT,
    -- The agent's key that signed it.
    result_key     TEXT,
    PRIMARY KEY (cluster_id, task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_node ON task (cluster_id, node_id, state);
CREATE INDEX task_state ON task (state, lease_until_ms);

-- How far tasks are and were.
CREATE TABLE task_progress (
    cluster_id  TEXT NOT NULL,
    task_id     TEXT NOT NULL,
    n           INTEGER NOT NULL,
    phase       TEXT NOT NULL,
    message     TEXT,
    -- By the node's clock.
    at          TEXT NOT NULL,
    received_ms INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, task_id, n)
) STRICT, WITHOUT ROWID;

-- Rotations of task keys, each signed by the key before.
CREATE TABLE task_key_rotation (
    cluster_id TEXT NOT NULL,
    n          INTEGER NOT NULL,
    old_key    TEXT NOT NULL,
    new_key    TEXT NOT NULL,
    signature  TEXT NOT NULL,
    rotated_ms INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, n)
) STRICT, WITHOUT ROWID;
