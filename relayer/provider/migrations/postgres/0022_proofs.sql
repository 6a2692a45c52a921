-- The rest of a heartbeat that waits: payload, signatures, key; JSON. Null if it is not kept.
ALTER TABLE waiting ADD COLUMN heartbeat BYTEA;

-- The same of heartbeats whose reports were bound to a transaction: until they end, and for the retention if they came on chain.
CREATE TABLE heartbeat (
    cluster_id  TEXT COLLATE "C" NOT NULL,
    node_id     TEXT COLLATE "C" NOT NULL,
    epoch       BIGINT NOT NULL,
    sequence    BIGINT NOT NULL,
    heartbeat   BYTEA NOT NULL,
    received_at BIGINT NOT NULL,
    -- The transaction that brought its report on chain.
    tx          TEXT COLLATE "C"
);
CREATE UNIQUE INDEX heartbeat_node ON heartbeat (cluster_id, node_id, epoch, sequence);
CREATE INDEX heartbeat_received_at ON heartbeat (received_at);
CREATE INDEX heartbeat_tx ON heartbeat (tx) WHERE tx IS NOT NULL;

-- What others can check of a transaction, before nodes forget it. Null until a node has given it.
CREATE TABLE evidence (
    tx       TEXT COLLATE "C" PRIMARY KEY,
    evidence TEXT COLLATE "C",
    asked_at BIGINT NOT NULL
);
CREATE INDEX evidence_open ON evidence (asked_at) WHERE evidence IS NULL;
