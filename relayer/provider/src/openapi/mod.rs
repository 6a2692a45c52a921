//! The OpenAPI 3.1 document of everything that the daemon answers: admin listener, gateway, health. The admin
//! listener's part comes from the table that its router is made of, all schemas from the types themselves.

mod gateway;
mod operation;
mod ops;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

pub use self::gateway::{GATEWAY_PATHS, GatewayPath};
use self::operation::{Operation, problems};
use crate::admin::http;

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for endpoint in http::endpoints() {
        let shape = (endpoint.shape)(&mut generator);
        add(&mut paths, &Operation::admin(&endpoint.spec, shape));
    }
    gateway::add(&mut paths, &mut generator);
    ops::add(&mut paths, &mut generator);
    let problem = generator.subschema_for::<hpc_schema::gateway::Problem>();
    let schemas = schemas(&mut generator);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "virtengine-provider",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Three listeners of one daemon. admin (default http://127.0.0.1:9465): what operators see and \
                            decide, with an admin token. gateway (default https://0.0.0.0:8443): agents, by mutual TLS; \
                            docs/protocol.md says what is signed. health (default http://127.0.0.1:9464): this machine only. \
                            Every refusal is application/problem+json with a stable code.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "tags": [
            { "name": "admin", "description": "What operators see and decide" },
            { "name": "gateway", "description": "Agents" },
            { "name": "health", "description": "Health, readiness, metrics" }
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": problems(&problem),
            "securitySchemes": {
                "admin_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "virtengine-provider admin-token create"
                },
                "node_certificate": {
                    "type": "mutualTLS",
                    "description": "The certificate that registration or renewal gave to the node"
                }
            }
        }
    })
}

fn schemas(generator: &mut SchemaGenerator) -> Value {
    Value::Object(generator.take_definitions(true))
}

fn add(paths: &mut Map<String, Value>, operation: &Operation) {
    let path = paths
        .entry(operation.path.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(path) = path.as_object_mut() {
        path.insert(operation.method.to_owned(), operation.to_value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_openapi_document_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        let committed: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(
            committed == document(),
            "run: cargo run --bin virtengine-provider -- openapi > relayer/provider/openapi.json"
        );
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_own_id() {
        let document = document();
        let text = document.to_string();
        for (at, _) in text.match_indices("\"$ref\":\"#") {
            let pointer: String = text[at + 9..].chars().take_while(|c| *c != '"').collect();
            assert!(document.pointer(&pointer).is_some(), "{pointer}");
        }
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                assert!(
                    ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                    "{path}"
                );
                assert!(
                    operation["summary"].as_str().is_some_and(|s| !s.is_empty()),
                    "{path}"
                );
            }
        }
    }
}
