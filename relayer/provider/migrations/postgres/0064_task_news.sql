-- Whoever waits for news of a task is told as it moves.
CREATE TRIGGER task_moves AFTER UPDATE ON task FOR EACH ROW
WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.phase IS DISTINCT FROM NEW.phase) EXECUTE FUNCTION wake_gateways();
CREATE TRIGGER task_progresses AFTER INSERT ON task_progress FOR EACH ROW EXECUTE FUNCTION wake_gateways();
