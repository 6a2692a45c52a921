-- What is wrong, each thing once. Times are UNIX milliseconds: started_at and ended_at by whoever said so (the chain for nodes),
-- raised_at and cleared_at by this machine's clock.
CREATE TABLE alert (
    key        TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    -- Empty where it is of no cluster or node.
    cluster_id TEXT NOT NULL,
    node_id    TEXT NOT NULL,
    severity   TEXT NOT NULL,
    summary    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    raised_at  INTEGER NOT NULL,
    ended_at   INTEGER,
    cleared_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_node ON alert (cluster_id, node_id);

-- What each receiver has been told, or will be by what lies in its outbox.
CREATE TABLE alert_told (
    sink  TEXT NOT NULL,
    key   TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('firing', 'resolved')),
    PRIMARY KEY (sink, key)
) STRICT, WITHOUT ROWID;

-- The one message that is on its way to a receiver; what happens meanwhile is gathered for the next.
CREATE TABLE alert_outbox (
    sink       TEXT PRIMARY KEY,
    id         TEXT NOT NULL,
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    next_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
