-- The attestation key that a registration with this token must quote by: hex of a SHA-256, or "new"; none: the pinned one.
ALTER TABLE token ADD COLUMN attestation_key TEXT COLLATE "C";
-- The TPM that is pinned for a node, at its first registration with a quote or by a token.
CREATE TABLE attestation (
    cluster_id      TEXT COLLATE "C" NOT NULL,
    node_id         TEXT COLLATE "C" NOT NULL,
    attestation_key TEXT COLLATE "C" NOT NULL,
    -- What it last quoted, JSON.
    pcrs            TEXT COLLATE "C" NOT NULL,
    pinned_at_s     BIGINT NOT NULL,
    quoted_at_s     BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, node_id)
);
-- All that a diagnostic has found: a JSON object.
ALTER TABLE command ADD COLUMN report TEXT COLLATE "C";
