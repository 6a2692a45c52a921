-- The rest of a heartbeat that waits: payload, signatures, key; JSON. Null if it is not kept.
ALTER TABLE waiting ADD COLUMN heartbeat BLOB;

-- The same of heartbeats whose reports were bound to a transaction: until they end, and for the retention if they came on chain.
CREATE TABLE heartbeat (
    cluster_id  TEXT NOT NULL,
    node_id     TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    sequence    INTEGER NOT NULL,
    heartbeat   BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    -- The transaction that brought its report on chain.
    tx          TEXT
) STRICT;
CREATE UNIQUE INDEX heartbeat_node ON heartbeat (cluster_id, node_id, epoch, sequence);
CREATE INDEX heartbeat_received_at ON heartbeat (received_at);
CREATE INDEX heartbeat_tx ON heartbeat (tx) WHERE tx IS NOT NULL;

-- What others can check of a transaction, before nodes forget it. Null until a node has given it.
CREATE TABLE evidence (
    tx       TEXT PRIMARY KEY,
    evidence TEXT,
    asked_at INTEGER NOT NULL
) STRICT;
CREATE INDEX evidence_open ON evidence (asked_at) WHERE evidence IS NULL;
