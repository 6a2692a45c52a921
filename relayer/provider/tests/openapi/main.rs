//! The OpenAPI document against a running daemon, by schemathesis, which makes requests of every kind from it: no 5xx,
//! and no answer that the document does not describe. Needs `schemathesis` in the path (`scripts/test --install`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../it/agent.rs"]
#[allow(dead_code, reason = "shared with the other suites")]
mod agent;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with the other suites")]
mod site;

use std::process::Command;

use agent::Agent;
use serde_json::{Value, json};
use site::{CLUSTER, Site};
use virtengine_provider::openapi::{GATEWAY_PATHS, document};

/// What an answer must not be, or must be.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method";

/// How many requests are made up for each operation.
fn examples() -> u32 {
    let runs = std::env::var("HPC_TEST_RUNS").ok().and_then(|n| n.parse().ok());
    runs.unwrap_or(5) * 3
}

/// The document, with the ids that there are beside one that is not: what is made up hits nothing else.
fn with_ids(ids: &[(&str, &str)]) -> Value {
    let mut document = document();
    let operations = document["paths"].as_object_mut().unwrap().values_mut();
    for operation in operations.flat_map(|path| path.as_object_mut().unwrap().values_mut()) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            for (name, id) in ids {
                if parameter["name"] == *name {
                    parameter["schema"] = json!({ "type": "string", "enum": [id, "none-0000"] });
                }
            }
            if parameter["name"] == "wait_seconds" {
                parameter["schema"] = json!({ "type": "integer", "enum": [0, 1] });
                parameter["required"] = true.into();
            }
        }
    }
    document
}

/// Runs it over the paths that match; panics with its report if it finds anything.
fn put_to_the_proof(site: &Site, document: &Value, url: &str, paths: &str, more: &[&str]) {
    let file = site.home().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let count = examples().to_string();
    // One worker: hypothesis, which makes up the values, is not safe with several threads.
    let out = Command::new("schemathesis")
        .arg("run")
        .arg(&file)
        .args(["--url", url, "--include-path-regex", paths, "--checks", CHECKS])
        .args([
            "--max-examples",
            &count,
            "--workers",
            "1",
            "--no-color",
            "--generation-deterministic",
        ])
        .args(["--request-timeout", "90", "--suppress-health-check", "all"])
        .args(more)
        .current_dir(site.home())
        .output()
        .expect("schemathesis is not in the path; remedy: scripts/test --install --only openapi");
    let (report, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{report}\n{errors}");
    println!("{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_5xx_and_no_undocumented_answer_of_admin_gateway_and_health() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.admin.requests_per_minute = 60_000;
    config.gateway.requests_per_minute = 60_000;
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence("node-0001", 1).await;
    let args = [
        "admin-token",
        "create",
        "--name",
        "schemathesis",
        "--role",
        "admin",
    ];
    let token = site.run(&args).0.trim().to_owned();
    let order = site
        .run(&["command", "send", "node-0001", "--type", "shutdown"])
        .0;
    site.token("node-0002", &Agent::new("node-0002").public(), "1h");
    let tokens: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    let probe = ["task", "submit", "node-0001", "--type", "diag.health_probe"];
    let (task, err, code) = site.run(&probe);
    assert_eq!(code, 0, "{err}");
    let ids = [
        ("task_id", task.trim()),
        ("node_id", "node-0001"),
        ("cluster_id", CLUSTER),
        ("command_id", order.trim()),
        ("jti", tokens[0]["jti"].as_str().unwrap()),
    ];
    let known = with_ids(&ids);
    let daemon = site.daemon.as_ref().unwrap();
    let (ca, certificate, key) = ("ca.pem", "node.pem", "node.key");
    std::fs::write(site.home().join(ca), site.ca()).unwrap();
    std::fs::write(site.home().join(certificate), &agent.certificate).unwrap();
    std::fs::write(site.home().join(key), agent.tls.serialize_pem()).unwrap();
    let tls = [
        "--tls-verify",
        ca,
        "--request-cert",
        certificate,
        "--request-cert-key",
        key,
    ];
    put_to_the_proof(&site, &known, &site.gateway(), "^/api/v1/hpc", &tls);
    // What is left out would be waited for.
    let waits = [&tls[..], &["--mode", "positive"]].concat();
    put_to_the_proof(&site, &known, &site.gateway(), "^/internal/v1/.*/wait$", &waits);
    let said = "^/internal/v1/.*/(progress|result)$";
    put_to_the_proof(&site, &known, &site.gateway(), said, &tls);
    let health = format!("http://{}", daemon.ops_addr());
    put_to_the_proof(&site, &known, &health, "^/(healthz|readyz|metrics)$", &[]);
    // Nothing that was refused did any harm.
    let after = agent.beat(&client, &site, 2).await;
    assert!(after.accepted, "{after:?}");
    let admin = format!("http://{}", daemon.admin_addr().unwrap());
    // What is served is what is committed.
    let address = format!("{admin}/api/v1/admin/openapi.json");
    assert_eq!(reqwest::get(&address).await.unwrap().status(), 401);
    let served = reqwest::Client::new().get(&address).bearer_auth(&token);
    let served = served.send().await.unwrap();
    assert_eq!(served.json::<Value>().await.unwrap(), document());
    let header = format!("Authorization: Bearer {token}");
    put_to_the_proof(&site, &known, &admin, "^/api/v1/admin", &["-H", &header]);
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_path_of_the_gateway_is_there() {
    let site = Site::start().await;
    let client = agent::client(&site.ca(), None);
    for known in GATEWAY_PATHS {
        let url = format!(
            "{}{}",
            site.gateway(),
            known
                .path
                .replace("{node_id}", "node-0001")
                .replace("{task_id}", "task-0001")
        );
        let request = match known.method {
            "get" => client.get(url),
            _ => client.post(url).body("{}"),
        };
        let status = request.send().await.unwrap().status();
        // 404 with a code is a node that is not on record; the path itself is there.
        let expected: &[u16] = if known.mutual { &[403] } else { &[200, 400, 404] };
        assert!(expected.contains(&status.as_u16()), "{}: {status}", known.path);
    }
}
