//! JSON Schemas (draft 2020-12) of every type that crosses a boundary as JSON.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::{command, gateway, heartbeat, registration, registry, sampling, task, token};

fn schema<T: JsonSchema>() -> Value {
    let schema: Schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>();
    schema.to_value()
}

/// Every schema with its file name in `schema/json/`, in the order of the names.
#[must_use]
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("heartbeat.json", schema::<heartbeat::Heartbeat>()),
        (
            "heartbeat-request.json",
            schema::<heartbeat::HeartbeatRequest<'_>>(),
        ),
        (
            "heartbeat-response.json",
            schema::<gateway::HeartbeatResponseBody>(),
        ),
        ("command.json", schema::<command::Command>()),
        ("task.json", schema::<task::Task>()),
        ("task-progress.json", schema::<task::ProgressRequest>()),
        ("task-result.json", schema::<task::TaskResult>()),
        ("task-wait-answer.json", schema::<task::WaitAnswer>()),
        ("register-request.json", schema::<gateway::RegisterRequest>()),
        ("register-response.json", schema::<gateway::RegisterResponse>()),
        ("register-pending.json", schema::<gateway::RegisterPending>()),
        (
            "certificate-request.json",
            schema::<gateway::CertificateRequest>(),
        ),
        (
            "certificate-response.json",
            schema::<gateway::CertificateResponse>(),
        ),
        (
            "certificate-challenge.json",
            schema::<gateway::ChallengeResponse>(),
        ),
        ("certificate-recover.json", schema::<gateway::RecoverRequest>()),
        ("problem.json", schema::<gateway::Problem>()),
        ("token-claims.json", schema::<token::TokenClaims>()),
        ("token-join-claims.json", schema::<token::JoinClaims>()),
        ("sampling-config.json", schema::<sampling::SamplingConfig>()),
        ("node-identity.json", schema::<registration::NodeIdentity>()),
        ("registry-params.json", schema::<registry::Params>()),
        ("registry-instantiate.json", schema::<registry::InstantiateMsg>()),
        ("registry-execute.json", schema::<registry::ExecuteMsg>()),
        ("registry-query.json", schema::<registry::QueryMsg>()),
        ("registry-migrate.json", schema::<registry::MigrateMsg>()),
        ("registry-answer-config.json", schema::<registry::ConfigAnswer>()),
        (
            "registry-answer-cluster.json",
            schema::<registry::ClusterAnswer>(),
        ),
        (
            "registry-answer-clusters.json",
            schema::<registry::ClustersAnswer>(),
        ),
        (
            "registry-answer-aggregate.json",
            schema::<registry::AggregateAnswer>(),
        ),
        ("registry-answer-node.json", schema::<registry::NodeAnswer>()),
        ("registry-answer-nodes.json", schema::<registry::NodesAnswer>()),
        ("registry-answer-relay.json", schema::<registry::RelayAnswer>()),
        ("registry-answer-jobs.json", schema::<registry::JobsAnswer>()),
        (
            "registry-answer-raw-page.json",
            schema::<registry::RawPageAnswer>(),
        ),
        ("registry-answer-anchor.json", schema::<registry::AnchorAnswer>()),
        (
            "registry-answer-anchors.json",
            schema::<registry::AnchorsAnswer>(),
        ),
        ("registry-answer-submit.json", schema::<registry::SubmitAnswer>()),
        (
            "registry-answer-register.json",
            schema::<registry::RegisterAnswer>(),
        ),
        ("registry-answer-sweep.json", schema::<registry::SweepAnswer>()),
        ("registry-answer-prune.json", schema::<registry::PruneAnswer>()),
    ];
    all.sort_by_key(|(name, _)| *name);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn file_names_are_unique_and_every_schema_is_an_object_schema() {
        let all = schemas();
        let names: BTreeSet<_> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        for (name, schema) in all {
            assert!(
                schema["title"].is_string() && schema.get("$schema").is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn the_heartbeats_schema_requires_what_the_protocol_requires() {
        let all = schemas();
        let (_, schema) = all.iter().find(|(name, _)| *name == "heartbeat.json").unwrap();
        let required = |at: &Value| -> BTreeSet<String> {
            at["required"]
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_str().unwrap().to_owned())
                .collect()
        };
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(
            required(schema),
            set(&[
                "node_id",
                "cluster_id",
                "sequence_number",
                "timestamp",
                "capacity",
                "health"
            ])
        );
        assert_eq!(
            required(&schema["$defs"]["Capacity"]),
            set(&[
                "cpu_cores_total",
                "cpu_cores_available",
                "memory_gb_total",
                "memory_gb_available"
            ])
        );
        assert_eq!(required(&schema["$defs"]["Health"]), set(&["status"]));
        // Lists may be absent as well, or null.
        assert!(schema["$defs"]["Jobs"].get("required").is_none());
        assert!(schema["$defs"]["Latency"].get("required").is_none());
        let (jobs, list) = (&schema["$defs"]["Jobs"], json!(["array", "null"]));
        assert_eq!(jobs["properties"]["active_job_ids"]["type"], list);
        assert_eq!(
            schema["$defs"]["Latency"]["properties"]["measurements"]["type"],
            list
        );
        let (_, request) = all
            .iter()
            .find(|(name, _)| *name == "heartbeat-request.json")
            .unwrap();
        assert_eq!(request["properties"]["acknowledgements"]["type"], list);
    }

    #[test]
    fn the_heartbeats_schema_takes_the_empty_text_for_absent() {
        let all = schemas();
        let (_, schema) = all.iter().find(|(name, _)| *name == "heartbeat.json").unwrap();
        for (of, name) in [
            ("Capacity", "gpu_type"),
            ("Services", "slurmd_version"),
            ("Services", "container_runtime_version"),
        ] {
            let text = &schema["$defs"][of]["properties"][name];
            assert!(text.get("minLength").is_none(), "{name}");
            assert!(text["pattern"].as_str().unwrap().ends_with("*$"), "{name}");
            assert_eq!(text["type"], json!(["string", "null"]), "{name}");
        }
        for (of, name) in [
            ("Health", "load_average_1m"),
            ("Health", "slurm_state"),
            ("Services", "container_runtime"),
        ] {
            let any = &schema["$defs"][of]["properties"][name]["anyOf"];
            assert!(any.as_array().unwrap().contains(&json!({"const": ""})), "{name}");
        }
        let id = &schema["$defs"]["Jobs"]["properties"]["active_job_ids"]["items"];
        assert_eq!(id["minLength"], 1, "what stands in a list is there");
    }
}
