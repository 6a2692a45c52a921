-- The queue as an ordinary table: a row with its heartbeat fits one page there. In the index that WITHOUT ROWID makes of a
-- table a row may take a quarter of a page, and the rest goes to a second one: two pages written for each heartbeat.
CREATE TABLE waiting_rows (
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
    -- The rest of a heartbeat that waits: payload, signatures, key; JSON. Null if it is not kept.
    heartbeat        BLOB,
    PRIMARY KEY (cluster_id, node_id)
) STRICT;
INSERT INTO waiting_rows SELECT cluster_id, node_id, epoch, sequence, report, signature, queued_at, received_at,
    superseded_from, superseded_count, heartbeat FROM waiting;
DROP TABLE waiting;
ALTER TABLE waiting_rows RENAME TO waiting;
