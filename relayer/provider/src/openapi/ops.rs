use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::ops::Readiness;

pub(super) fn add(paths: &mut Map<String, Value>, generator: &mut SchemaGenerator) {
    let readiness = generator.subschema_for::<Readiness>();
    let get = |id: &str, summary: &str, responses: Value| {
        json!({ "get": {
            "operationId": id, "summary": summary, "tags": ["health"], "security": [], "responses": responses
        } })
    };
    let text = |kind: &str| json!({ "200": { "description": "OK", "content": { kind: { "schema": { "type": "string" } } } } });
    let ready = |what: &str| json!({ "description": what, "content": { "application/json": { "schema": readiness } } });
    let both =
        json!({ "200": ready("Ready"), "503": ready("Not ready; heartbeats are accepted all the same") });
    paths.insert(
        "/healthz".into(),
        get(
            "healthz",
            "Whether the daemon answers",
            text("text/plain; charset=utf-8"),
        ),
    );
    paths.insert(
        "/readyz".into(),
        get("readyz", "Whether anything keeps the daemon from its work", both),
    );
    let metrics = text("application/openmetrics-text; version=1.0.0; charset=utf-8");
    paths.insert(
        "/metrics".into(),
        get("metrics", "Metrics for Prometheus", metrics),
    );
}
