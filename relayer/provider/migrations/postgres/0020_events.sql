-- How far the chain's events have been taken in: every block up to this one.
CREATE TABLE followed (
    one    BIGINT PRIMARY KEY CHECK (one = 1),
    height BIGINT NOT NULL
);

-- The chain's events of the nodes served, each at its place on the chain.
CREATE TABLE chain_event (
    height     BIGINT NOT NULL,
    tx         BIGINT NOT NULL,
    item       BIGINT NOT NULL,
    cluster_id TEXT COLLATE "C" NOT NULL,
    node_id    TEXT COLLATE "C" NOT NULL,
    -- Type and attributes, JSON.
    event      TEXT COLLATE "C" NOT NULL,
    seen_at    BIGINT NOT NULL,
    -- An event may be of several nodes.
    PRIMARY KEY (height, tx, item, node_id)
);
CREATE INDEX chain_event_node ON chain_event (cluster_id, node_id, height);
CREATE INDEX chain_event_seen_at ON chain_event (seen_at);

-- Since when nodes are deregistered: by the chain's event, or by the first look at them.
CREATE TABLE deregistered (
    cluster_id TEXT COLLATE "C" NOT NULL,
    node_id    TEXT COLLATE "C" NOT NULL,
    epoch      BIGINT NOT NULL,
    at_s       BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
);
