-- The attestation key that a registration with this token must quote by: hex of a SHA-256, or "new"; none: the pinned one.
ALTER TABLE token ADD COLUMN attestation_key TEXT;
-- The TPM that is pinned for a node, at its first registration with a quote or by a token.
CREATE TABLE attestation (
    cluster_id      TEXT NOT NULL,
    node_id         TEXT NOT NULL,
    attestation_key TEXT NOT NULL,
    -- What it last quoted, JSON.
    pcrs            TEXT NOT NULL,
    pinned_at_s     INTEGER NOT NULL,
    quoted_at_s     INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
) STRICT, WITHOUT ROWID;
-- All that a diagnostic has found: a JSON object.
ALTER TABLE command ADD COLUMN report TEXT;
