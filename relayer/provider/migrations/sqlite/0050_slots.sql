-- What nodes can let: a slot is found, approved, proven clean, let, and proven clean again.
CREATE TABLE slot (
    cluster_id    TEXT NOT NULL,
    node_id       TEXT NOT NULL,
    slot_id       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('candidate', 'approved', 'free', 'leased', 'releasing', 'quarantined', 'retired')),
    -- Its devices and its size, as tasks name them.
    slot          TEXT NOT NULL,
    -- Whose machine has it.
    allocation_id TEXT,
    vm_name       TEXT,
    -- The task that works on it and has not ended.
    task_id       TEXT,
    -- The task whose signed result put it into its state.
    settled_by    TEXT,
    -- Why it is where it is.
    note          TEXT,
    -- UNIX milliseconds.
    found_ms      BIGINT NOT NULL,
    changed_ms    BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id, slot_id)
);
CREATE INDEX slot_task ON slot (cluster_id, task_id);
