-- What is wrong, each thing once. Times are UNIX milliseconds: started_at and ended_at by whoever said so (the chain for nodes),
-- raised_at and cleared_at by this machine's clock.
CREATE TABLE alert (
    key        TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    -- Empty where it is of no cluster or node.
    cluster_id TEXT COLLATE "C" NOT NULL,
    node_id    TEXT COLLATE "C" NOT NULL,
    severity   TEXT COLLATE "C" NOT NULL,
    summary    TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    raised_at  BIGINT NOT NULL,
    ended_at   BIGINT,
    cleared_at BIGINT
);
CREATE INDEX alert_node ON alert (cluster_id, node_id);

-- What each receiver has been told, or will be by what lies in its outbox.
CREATE TABLE alert_told (
    sink  TEXT COLLATE "C" NOT NULL,
    key   TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL CHECK (state IN ('firing', 'resolved')),
    PRIMARY KEY (sink, key)
);

-- The one message that is on its way to a receiver; what happens meanwhile is gathered for the next.
CREATE TABLE alert_outbox (
    sink       TEXT COLLATE "C" PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL,
    body       TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    attempts   BIGINT NOT NULL,
    next_at    BIGINT NOT NULL
);
