-- What several gateways on one store need of each other. SQLite's store belongs to one process and has none of this.

-- Who does what only one may do at a time: the duties of all, and the sequence of each signing key.
CREATE TABLE lease (
    name       TEXT COLLATE "C" PRIMARY KEY,
    holder     TEXT COLLATE "C" NOT NULL,
    -- Moves with each new holder: what an earlier one still writes is refused.
    fence      BIGINT NOT NULL,
    -- UNIX milliseconds by this server's clock.
    expires_ms BIGINT NOT NULL
);

-- In which order nodes changed, for gateways that look for what others have read or settled. Rows change in transactions
-- that exclude each other, so that none becomes visible after a later one.
CREATE SEQUENCE node_change;
ALTER TABLE node ADD COLUMN changed BIGINT NOT NULL DEFAULT nextval('node_change');
CREATE INDEX node_changed ON node (changed);
ALTER TABLE intake ADD COLUMN changed BIGINT;
CREATE INDEX intake_changed ON intake (changed) WHERE changed IS NOT NULL;
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.changed := nextval('node_change'); RETURN NEW; END $$;
CREATE TRIGGER node_changes BEFORE UPDATE ON node FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER intake_refused BEFORE UPDATE OF refusal_at ON intake FOR EACH ROW EXECUTE FUNCTION note_change();

-- Wakes the gateways: decisions, tasks.
CREATE FUNCTION wake_gateways() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_notify('virtengine_gateways', current_schema()); RETURN NULL; END $$;
CREATE TRIGGER control_changes AFTER UPDATE ON control FOR EACH STATEMENT EXECUTE FUNCTION wake_gateways();
CREATE TRIGGER task_comes AFTER INSERT OR UPDATE OF approval, cancelled_by ON task
FOR EACH STATEMENT EXECUTE FUNCTION wake_gateways();
