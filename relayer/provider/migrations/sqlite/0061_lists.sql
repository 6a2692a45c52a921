-- Each list is in the order of an index, so that a page costs what it shows.
CREATE INDEX node_by_id ON node (node_id, cluster_id);
CREATE INDEX token_by_time ON token (created_at_s, jti);
CREATE INDEX join_token_by_time ON join_token (created_at_s, jti);
CREATE INDEX admin_token_by_time ON admin_token (created_at_s, id);
CREATE INDEX registration_waits ON registration (id) WHERE held = 1;
CREATE INDEX command_by_time ON command (issued_at_s, command_id);
CREATE INDEX command_by_node ON command (node_id, issued_at_s, command_id);
CREATE INDEX task_by_time ON task (submitted_ms, cluster_id, task_id);
CREATE INDEX task_by_node ON task (node_id, submitted_ms, cluster_id, task_id);
CREATE INDEX alert_by_time ON alert (started_at, key);
