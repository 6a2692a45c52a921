-- When all certificates of a node were last revoked: one of an outside CA that was issued before counts no more, should it be
-- seen only later.
CREATE TABLE revoked_before (
    cluster_id TEXT COLLATE "C" NOT NULL,
    node_id    TEXT COLLATE "C" NOT NULL,
    at_s       BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
);
