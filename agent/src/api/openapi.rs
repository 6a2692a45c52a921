//! The OpenAPI document of the interface, made from its types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answer::{PATHS, Probe, Refused, SLICE, StatusAnswer};
use super::capacity::CapacityAnswer;

/// The document: `agent/openapi.json`.
#[must_use]
pub fn document() -> Value {
    let paths: Map<String, Value> = PATHS
        .iter()
        .map(|(path, says)| ((*path).to_owned(), json!({ "get": operation(path, says) })))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "VirtEngine node agent",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The agent's local interface: read-only. Guide: docs/agent.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:9000"}],
        // Either may be asked for by the configuration; on the loopback none is by default.
        "security": [{}, {"token": []}, {"certificate": []}],
        "paths": paths,
        "components": {"securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "api.token_file"},
            "certificate": {"type": "mutualTLS", "description": "api.tls.client_ca"},
        }},
    })
}

fn operation(path: &str, says: &str) -> Value {
    let name = path
        .trim_start_matches("/v1")
        .trim_start_matches('/')
        .trim_end_matches(".json");
    let mut responses = match path {
        "/healthz" | "/readyz" => json!({
            "200": of::<Probe>("It is so."),
            "503": of::<Probe>("It is not, and why."),
        }),
        "/v1/capacity" => json!({
            "200": of::<CapacityAnswer>("Capacity."),
            "503": of::<Refused>("Nothing is measured yet."),
        }),
        "/v1/status" => json!({"200": of::<StatusAnswer>("Status.")}),
        "/metrics" => json!({"200": text()}),
        SLICE => json!({
            "200": text(),
            "404": of::<Refused>("There is no such machine here."),
            "503": of::<Refused>("libvirt has said nothing of it for a minute."),
        }),
        _ => json!({"200": {
            "description": "The document.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }}),
    };
    if let Some(all) = responses.as_object_mut() {
        all.insert("401".into(), of::<Refused>("The token is missing or wrong."));
        all.insert(
            "429".into(),
            of::<Refused>("Too many requests: wait for Retry-After."),
        );
    }
    let mut operation = json!({"operationId": name, "summary": says, "responses": responses});
    if path == SLICE
        && let Some(all) = operation.as_object_mut()
    {
        all.insert("operationId".into(), "metrics/slices".into());
        let vm = json!({"name": "vm_name", "in": "path", "required": true, "schema": {"type": "string"}});
        all.insert("parameters".into(), json!([vm]));
    }
    operation
}

fn text() -> Value {
    json!({"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}})
}

fn of<T: JsonSchema>(description: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_that_of_the_code() {
        let committed: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        assert!(
            committed == document(),
            "run: cargo run --bin virtengine-node-agent -- openapi > agent/openapi.json"
        );
    }
}
