-- What nodes can let: a slot is found, approved, proven clean, let, and proven clean again.
CREATE TABLE slot (
    cluster_id    TEXT COLLATE "C" NOT NULL,
    node_id       TEXT COLLATE "C" NOT NULL,
    slot_id       TEXT COLLATE "C" NOT NULL,
    state         TEXT COLLATE "C" NOT NULL CHECK (state IN ('candidate', 'approved', 'free', 'leased', 'releasing', 'quarantined', 'retired')),
    -- Its devices and its size, as tasks name them.
    slot          TEXT COLLATE "C" NOT NULL,
    -- Whose machine has it.
    allocation_id TEXT COLLATE "C",
    vm_name       TEXT COLLATE "C",
    -- The task that works on it and has not ended.
    task_id       TEXT COLLATE "C",
    -- The task whose signed result put it into its state.
    settled_by    TEXT COLLATE "C",
    -- Why it is where it is.
    note          TEXT COLLATE "C",
    -- UNIX milliseconds.
    found_ms      BIGINT NOT NULL,
    changed_ms    BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id, slot_id)
);
CREATE INDEX slot_task ON slot (cluster_id, task_id);
