-- Times are UNIX milliseconds unless the column's name ends in _s. Epochs and sequences fit 63 bits;
-- account numbers use all 64 and live as text inside signer.state.

-- The store belongs to one contract on one chain.
CREATE TABLE binding (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    chain_id TEXT NOT NULL,
    contract TEXT NOT NULL,
    -- The contract's parameters as last read.
    params   TEXT
) STRICT;

-- Registration tokens (only what they are bound to; never the token itself).
CREATE TABLE token (
    jti          TEXT PRIMARY KEY,
    cluster_id   TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    public_key   BLOB NOT NULL,
    created_at_s INTEGER NOT NULL,
    expires_at_s INTEGER NOT NULL,
    revoked_at_s INTEGER,
    used_at_s    INTEGER
) STRICT, WITHOUT ROWID;

-- One registration a token: from the agent's request to the chain's answer.
CREATE TABLE registration (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    jti                  TEXT NOT NULL UNIQUE REFERENCES token (jti),
    cluster_id           TEXT NOT NULL,
    node_id              TEXT NOT NULL,
    public_key           BLOB NOT NULL,
    csr                  BLOB NOT NULL,
    hostname             TEXT,
    hardware_fingerprint TEXT,
    state                TEXT NOT NULL CHECK (state IN ('queued', 'sent', 'on_chain', 'refused')),
    code                 INTEGER,
    detail               TEXT,
    epoch                INTEGER,
    certificate          TEXT,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL
) STRICT;
CREATE INDEX registration_state ON registration (state);

-- Every certificate issued to a node.
CREATE TABLE certificate (
    serial      TEXT PRIMARY KEY,
    cluster_id  TEXT NOT NULL,
    node_id     TEXT NOT NULL,
    issued_at_s INTEGER NOT NULL,
    not_after_s INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX certificate_not_after ON certificate (not_after_s);

-- Clusters as last read from the chain.
CREATE TABLE cluster (
    cluster_id TEXT PRIMARY KEY,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Nodes as last read from the chain.
CREATE TABLE node (
    cluster_id       TEXT NOT NULL,
    node_id          TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    public_key       BLOB NOT NULL,
    page             INTEGER NOT NULL,
    slot             INTEGER NOT NULL,
    settled_sequence INTEGER NOT NULL,
    section_digest   BLOB NOT NULL,
    recorded_state   INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    last_heartbeat_s INTEGER NOT NULL,
    offline_since_s  INTEGER,
    drain            TEXT,
    height           INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;

-- What the gateway knows of a node beside the chain.
CREATE TABLE contact (
    cluster_id    TEXT NOT NULL,
    node_id       TEXT NOT NULL,
    address       TEXT,
    probe_port    INTEGER,
    -- The newest order of the provider: drain or resume.
    order_kind    TEXT CHECK (order_kind IN ('drain', 'resume')),
    order_id      TEXT,
    order_at_s    INTEGER,
    order_until_s INTEGER,
    -- What the gateway itself last turned away.
    refusal_code  INTEGER,
    refusal_at    INTEGER,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;

-- What has been accepted of each node: the acknowledgement, and the newest second section.
CREATE TABLE intake (
    cluster_id       TEXT NOT NULL,
    node_id          TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    acked_sequence   INTEGER NOT NULL,
    highest_sequence INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    section          BLOB,
    section_digest   BLOB,
    refusal_code     INTEGER,
    refusal_sequence INTEGER,
    refusal_at       INTEGER,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;

-- The queue: at most one report a node, the newest.
CREATE TABLE waiting (
    cluster_id       TEXT NOT NULL,
    node_id          TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    report           BLOB NOT NULL,
    signature        BLOB NOT NULL,
    queued_at        INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    -- Accepted reports of this epoch that this one replaced in the queue.
    superseded_from  INTEGER,
    superseded_count INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;

-- One state of the settlement machine a signing key.
CREATE TABLE signer (
    signer     TEXT PRIMARY KEY,
    state      TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Every transaction that was signed. Ended ones stay for the history's length.
CREATE TABLE batch (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    signer         TEXT NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('reports', 'register', 'sweep')),
    hash           TEXT,
    sequence       TEXT,
    timeout_height INTEGER,
    gas_limit      INTEGER,
    created_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    ended          TEXT CHECK (ended IN ('included', 'failed', 'expired', 'consumed', 'withdrawn')),
    code           INTEGER,
    height         INTEGER,
    log            TEXT
) STRICT;
CREATE INDEX batch_ended_at ON batch (ended_at);

-- Reports bound to a transaction that has not ended.
CREATE TABLE batch_report (
    batch_id         INTEGER NOT NULL REFERENCES batch (id),
    item             INTEGER NOT NULL,
    cluster_id       TEXT NOT NULL,
    node_id          TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    report           BLOB NOT NULL,
    signature        BLOB NOT NULL,
    queued_at        INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    superseded_from  INTEGER,
    superseded_count INTEGER NOT NULL,
    -- Its end was on record before the transaction was stored; the item only keeps its number.
    recorded         INTEGER NOT NULL,
    PRIMARY KEY (batch_id, item)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_report_node ON batch_report (cluster_id, node_id);

-- Registrations bound to a transaction that has not ended.
CREATE TABLE batch_registration (
    batch_id        INTEGER NOT NULL REFERENCES batch (id),
    item            INTEGER NOT NULL,
    registration_id INTEGER NOT NULL REFERENCES registration (id),
    PRIMARY KEY (batch_id, item)
) STRICT, WITHOUT ROWID;

-- How each report ended: on chain, refused there, or given up here. A replaced one is counted in the
-- record of the report that replaced it.
CREATE TABLE report_end (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster_id       TEXT NOT NULL,
    node_id          TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    superseded_from  INTEGER,
    superseded_count INTEGER NOT NULL,
    ended            TEXT NOT NULL CHECK (ended IN ('on_chain', 'refused', 'superseded')),
    code             INTEGER,
    batch_id         INTEGER,
    height           INTEGER,
    ended_at         INTEGER NOT NULL
) STRICT;
CREATE INDEX report_end_node ON report_end (cluster_id, node_id, id);
CREATE INDEX report_end_ended_at ON report_end (ended_at);
