-- How far the chain's events have been taken in: every block up to this one.
CREATE TABLE followed (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    height INTEGER NOT NULL
) STRICT;

-- The chain's events of the nodes served, each at its place on the chain.
CREATE TABLE chain_event (
    height     INTEGER NOT NULL,
    tx         INTEGER NOT NULL,
    item       INTEGER NOT NULL,
    cluster_id TEXT NOT NULL,
    node_id    TEXT NOT NULL,
    -- Type and attributes, JSON.
    event      TEXT NOT NULL,
    seen_at    INTEGER NOT NULL,
    -- An event may be of several nodes.
    PRIMARY KEY (height, tx, item, node_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX chain_event_node ON chain_event (cluster_id, node_id, height);
CREATE INDEX chain_event_seen_at ON chain_event (seen_at);

-- Since when nodes are deregistered: by the chain's event, or by the first look at them.
CREATE TABLE deregistered (
    cluster_id TEXT NOT NULL,
    node_id    TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    at_s       INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;
