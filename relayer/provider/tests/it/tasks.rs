//! Tasks: delivered signed to the node that waits, ended by what the node signs, and by nothing else.

use std::sync::Weak;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::id::ClusterId;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::task::{
    Delivered, TaskHash, TaskOutcome, TaskResult, TaskScope, WaitAnswer, progress_path, result_message,
    result_path, verify_cancellation, verify_task, wait_path,
};
use hpc_schema::time::Rfc3339;
use reqwest::{Client, Method, Response};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use virtengine_provider::admin::Admin;
use virtengine_provider::clock;
use virtengine_provider::config::{Config, Span};
use virtengine_provider::home::Home;

use crate::admin;
use crate::agent::{Agent, problem};
use crate::site::{CHAIN_ID, Site, cluster};

/// Submits a task that waits for approval.
pub(crate) const INSTALL: [&str; 7] = [
    "task",
    "submit",
    "node-0001",
    "--type",
    "node.prerequisites_install",
    "--params",
    r#"{"packages":["qemu-utils"]}"#,
];

const PROBE: [&str; 5] = ["task", "submit", "node-0001", "--type", "diag.health_probe"];

/// What the probe finds.
const PROBED: &str = r#"{"status": "pass", "checks": [], "kvm_present": true, "vfio_loaded": true, "gpus": [],
    "fabric_links": []}"#;

fn submit(site: &Site, more: &[&str]) -> String {
    let (out, err, code) = site.run(&[&PROBE[..], more].concat());
    assert_eq!(code, 0, "{err}");
    out.trim().to_owned()
}

fn show(site: &Site, id: &str) -> Value {
    let (out, err, code) = site.run(&["task", "show", id, "-o", "json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

async fn ask(agent: &Agent, client: &Client, site: &Site, seconds: u32) -> Response {
    let path = wait_path(&agent.node.parse().unwrap());
    let url = format!("{}{path}?wait_seconds={seconds}", site.gateway());
    client.get(url).send().await.unwrap()
}

async fn wait(agent: &Agent, client: &Client, site: &Site, seconds: u32) -> Option<WaitAnswer> {
    let response = ask(agent, client, site, seconds).await;
    match response.status().as_u16() {
        200 => Some(serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()),
        204 => None,
        _ => panic!("{:?}", problem(response).await),
    }
}

fn hash(agent: &Agent, site: &Site, delivered: &Delivered) -> TaskHash {
    let (cluster_id, node_id) = (cluster(), agent.node.parse().unwrap());
    let scope = TaskScope {
        chain_id: CHAIN_ID,
        contract: &site.contract,
        cluster_id: &cluster_id,
        node_id: &node_id,
    };
    let key = agent.registered.as_ref().unwrap().task_public_key.unwrap();
    verify_task(&delivered.task, &scope, &key, clock::now(), &ZebraVerifier)
        .unwrap()
        .1
}

fn result(agent: &Agent, hash: TaskHash) -> TaskResult {
    let at = Rfc3339::from_unix(clock::now().0, 0).unwrap();
    let mut result = TaskResult {
        task_hash: hash.to_hex(),
        outcome: TaskOutcome::Completed,
        code: None,
        detail: None,
        result: RawValue::from_string(PROBED.to_owned()).unwrap(),
        started_at: at.clone(),
        finished_at: at,
        signature: String::new(),
    };
    sign(agent, hash, &mut result);
    result
}

fn sign(agent: &Agent, hash: TaskHash, result: &mut TaskResult) {
    result.signature = STANDARD.encode(agent.seed.sign(&result_message(hash, result)));
}

async fn post<T: serde::Serialize>(client: &Client, site: &Site, path: &str, body: &T) -> Response {
    let url = format!("{}{path}", site.gateway());
    client.post(url).json(body).send().await.unwrap()
}

async fn send(agent: &Agent, client: &Client, site: &Site, id: &str, result: &TaskResult) -> Response {
    let path = result_path(&agent.node.parse().unwrap(), &id.parse().unwrap());
    post(client, site, &path, result).await
}

async fn begun(agent: &Agent, client: &Client, site: &Site, delivered: &Delivered) -> u16 {
    let hash = hash(agent, site, delivered).to_hex();
    let path = progress_path(&agent.node.parse().unwrap(), &delivered.task.task_id);
    let at = Rfc3339::from_unix(clock::now().0, 0).unwrap();
    let body = json!({"task_hash": hash, "phase": "begun", "at": at});
    post(client, site, &path, &body).await.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_to_the_node_that_waits_and_ends_by_the_result_that_it_signed() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(wait(&agent, &client, &site, 0).await.is_none());
    let (waited, id) = tokio::join!(wait(&agent, &client, &site, 60), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| submit(&site, &["--params", r#"{"checks":["gpu"]}"#]))
    });
    let delivered = waited.unwrap().tasks.pop().unwrap();
    assert_eq!(delivered.task.task_id.as_str(), id);
    assert_eq!(show(&site, &id)["state"], "dispatched");
    let hash = hash(&agent, &site, &delivered);
    assert_eq!(begun(&agent, &client, &site, &delivered).await, 200);
    assert_eq!(show(&site, &id)["state"], "running");
    let good = result(&agent, hash);
    assert_eq!(send(&agent, &client, &site, &id, &good).await.status(), 200);
    // Its answer was lost: the same words again are good, others are not.
    assert_eq!(send(&agent, &client, &site, &id, &good).await.status(), 200);
    let mut other = result(&agent, hash);
    other.outcome = TaskOutcome::Failed;
    other.code = Some("task_failed".to_owned());
    sign(&agent, hash, &mut other);
    let answer = problem(send(&agent, &client, &site, &id, &other).await).await;
    assert_eq!(answer, (409, "task_mismatch".to_owned()));
    let row = show(&site, &id);
    assert_eq!(
        (row["state"].as_str(), row["progress"][0]["phase"].as_str()),
        (Some("completed"), Some("begun"))
    );
    assert_eq!(row["result"]["result"]["status"], "pass");
    let (out, _, code) = site.run(&["task", "watch", &id]);
    assert!(code == 0 && out.contains("completed"), "{out}");
    for shown in [&["task", "show", &id][..], &["task", "list", "-o", "yaml"]] {
        let (out, _, code) = site.run(shown);
        let values = out.contains("checks:") && out.contains("kvm_present: true");
        assert!(code == 0 && values && !out.contains("RawValue"), "{out}");
    }
    // Under its id the same task is known, and another one refused.
    let (_, err, code) = site.run(&[&PROBE[..], &["--task-id", &id]].concat());
    assert!(code != 0 && err.contains("task_mismatch"), "{err}");
    submit(&site, &["--task-id", &id, "--params", r#"{"checks":["gpu"]}"#]);
    assert!(wait(&agent, &client, &site, 0).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_node_and_no_forged_word_gets_or_ends_a_task() {
    let site = Site::start().await;
    let (agent, other) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let (client, others) = (agent.client(&site), other.client(&site));
    let id = submit(&site, &[]);
    // Another node's certificate, and none.
    let answer = problem(ask(&agent, &others, &site, 0).await).await;
    assert_eq!(answer, (403, "identity_mismatch".to_owned()));
    let nobody = crate::agent::client(&site.ca(), None);
    let answer = problem(ask(&agent, &nobody, &site, 0).await).await;
    assert_eq!(answer, (403, "identity_mismatch".to_owned()));
    assert!(
        wait(&other, &others, &site, 0).await.is_none(),
        "it is not its task"
    );
    let delivered = wait(&agent, &client, &site, 5)
        .await
        .unwrap()
        .tasks
        .pop()
        .unwrap();
    let hash = hash(&agent, &site, &delivered);
    let good = result(&agent, hash);
    let refused = async |agent: &Agent, client: &Client, id: &str, result: &TaskResult| {
        problem(send(agent, client, &site, id, result).await).await.1
    };
    // Signed by another node, of another task, changed after it was signed, without a signature, with a code that is none.
    let mut by_other = good.clone();
    sign(&other, hash, &mut by_other);
    assert_eq!(
        refused(&agent, &client, &id, &by_other).await,
        "signature_invalid"
    );
    assert_eq!(refused(&other, &others, &id, &by_other).await, "unknown_task");
    let elsewhere = result(&agent, TaskHash([7; 32]));
    assert_eq!(refused(&agent, &client, &id, &elsewhere).await, "task_mismatch");
    let changed = [
        TaskResult {
            outcome: TaskOutcome::Failed,
            ..good.clone()
        },
        TaskResult {
            detail: Some("x".into()),
            ..good.clone()
        },
        TaskResult {
            result: RawValue::from_string("{}".into()).unwrap(),
            ..good.clone()
        },
        TaskResult {
            finished_at: Rfc3339::from_unix(clock::now().0 + 9, 0).unwrap(),
            ..good.clone()
        },
        TaskResult {
            signature: STANDARD.encode([0; 64]),
            ..good.clone()
        },
    ];
    for result in &changed {
        assert_eq!(
            refused(&agent, &client, &id, result).await,
            "signature_invalid",
            "{result:?}"
        );
    }
    for (result, code) in [
        (
            TaskResult {
                signature: "*".into(),
                ..good.clone()
            },
            "malformed",
        ),
        (
            TaskResult {
                code: Some("no_such".into()),
                ..good.clone()
            },
            "malformed",
        ),
        (
            TaskResult {
                detail: Some("x".repeat(2000)),
                ..good.clone()
            },
            "malformed",
        ),
        (
            TaskResult {
                result: RawValue::from_string("[]".into()).unwrap(),
                ..good.clone()
            },
            "malformed",
        ),
        (
            TaskResult {
                result: RawValue::from_string(format!("{{\"a\":\"{}\"}}", "x".repeat(300_000))).unwrap(),
                ..good.clone()
            },
            "body_too_large",
        ),
    ] {
        assert_eq!(refused(&agent, &client, &id, &result).await, code);
    }
    assert_eq!(
        refused(&agent, &client, "no-such-task", &good).await,
        "unknown_task"
    );
    let path = progress_path(&agent.node.parse().unwrap(), &delivered.task.task_id);
    let body = json!({"task_hash": "0".repeat(64), "phase": "begun", "at": good.started_at});
    let answer = problem(post(&client, &site, &path, &body).await).await;
    assert_eq!(answer, (409, "task_mismatch".to_owned()));
    assert_eq!(
        show(&site, &id)["state"],
        "dispatched",
        "none of them left a trace"
    );
    // What it signed itself and is of another form than its type's: how the task ended is unknown until it says so.
    let mut formless = TaskResult {
        result: RawValue::from_string(r#"{"x":"not the schema"}"#.into()).unwrap(),
        ..good.clone()
    };
    sign(&agent, hash, &mut formless);
    let answer = problem(send(&agent, &client, &site, &id, &formless).await).await;
    assert_eq!(answer, (400, "invalid_field".to_owned()));
    let row = show(&site, &id);
    assert_eq!(
        (row["state"].as_str(), row["code"].as_str()),
        (Some("failed"), Some("outcome_unknown"))
    );
    assert!(
        row["detail"].as_str().unwrap().contains("result: missing field"),
        "{row}"
    );
    assert_eq!(send(&agent, &client, &site, &id, &good).await.status(), 200);
    assert_eq!(show(&site, &id)["state"], "completed");
    // Who disabled the node stops its tasks too.
    let (_, err, code) = site.run(&["node", "disable", "node-0001", "--reason", "ticket 4711"]);
    assert_eq!(code, 0, "{err}");
    crate::site::eventually("disabled", async || {
        ask(&agent, &client, &site, 0).await.status() == 403
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_node_tells_nothing_of_its_tasks_until_it_is_enabled() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let id = submit(&site, &[]);
    let delivered = wait(&agent, &client, &site, 5).await.unwrap().tasks;
    let delivered = delivered.first().unwrap();
    let (_, err, code) = site.run(&["node", "disable", "node-0001", "--reason", "ticket 4711"]);
    assert_eq!(code, 0, "{err}");
    crate::site::eventually("disabled", async || {
        ask(&agent, &client, &site, 0).await.status() == 403
    })
    .await;
    let hash = hash(&agent, &site, delivered);
    let good = result(&agent, hash);
    let disabled = (403, "node_disabled".to_owned());
    let answer = send(&agent, &client, &site, &id, &good).await;
    assert_eq!(problem(answer).await, disabled);
    let path = progress_path(&agent.node.parse().unwrap(), &delivered.task.task_id);
    let at = Rfc3339::from_unix(clock::now().0, 0).unwrap();
    let body = json!({"task_hash": hash.to_hex(), "phase": "begun", "at": at});
    let answer = post(&client, &site, &path, &body).await;
    assert_eq!(problem(answer).await, disabled);
    let row = show(&site, &id);
    assert_eq!(row["state"], "dispatched", "{row}");
    assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
    crate::site::eventually("its result is taken", async || {
        send(&agent, &client, &site, &id, &good).await.status() == 200
    })
    .await;
    assert_eq!(show(&site, &id)["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_connection_waits_and_an_older_one_is_told_so() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let (old, new) = (agent.client(&site), agent.client(&site));
    // Both are connected: which comes first is then no matter of handshakes.
    for client in [&old, &new] {
        assert!(wait(&agent, client, &site, 0).await.is_none());
    }
    let first = async {
        // Once it is told so, the other one waits.
        let first = ask(&agent, &old, &site, 60).await;
        (first, tokio::task::block_in_place(|| submit(&site, &[])))
    };
    let second = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        wait(&agent, &new, &site, 60).await
    };
    let ((first, id), second) = tokio::join!(first, second);
    assert_eq!(problem(first).await, (409, "session_superseded".to_owned()));
    assert_eq!(second.unwrap().tasks[0].task.task_id.as_str(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_delivery_comes_again_and_word_of_the_node_keeps_its_lease() {
    let mut site = Site::prepare().await;
    let mut config: Config = site.config();
    config.tasks.lease = Span::seconds(5);
    config.tasks.per_node = 1;
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let id = submit(&site, &[]);
    let second = submit(&site, &[]);
    let first = wait(&agent, &client, &site, 5).await.unwrap().tasks;
    assert_eq!((first.len(), first[0].attempt), (1, 1), "one at a time");
    // Nothing is heard of it: the same bytes again.
    let again = wait(&agent, &client, &site, 30).await.unwrap().tasks;
    assert_eq!(
        (again[0].task.task_id.as_str(), again[0].attempt),
        (id.as_str(), 2)
    );
    assert_eq!(again[0].task.signature, first[0].task.signature);
    // A restart forgets neither queue nor lease.
    site.stop_daemon().await;
    let mut config: Config = site.config();
    config.tasks.lease = Span::seconds(5);
    config.tasks.per_node = 1;
    site.start_with(config).await;
    for _ in 0..5 {
        assert_eq!(begun(&agent, &client, &site, &again[0]).await, 200);
        assert!(wait(&agent, &client, &site, 1).await.is_none(), "it is under way");
    }
    let hash = hash(&agent, &site, &again[0]);
    let (sent, next) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(begun(&agent, &client, &site, &again[0]).await, 200);
            send(&agent, &client, &site, &id, &result(&agent, hash))
                .await
                .status()
        },
        wait(&agent, &client, &site, 30)
    );
    assert_eq!(sent, 200);
    assert_eq!(
        next.unwrap().tasks[0].task.task_id.as_str(),
        second,
        "its turn comes at once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_taken_back_by_a_signed_word_and_one_that_needs_approval_waits_for_it() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let id = submit(&site, &[]);
    let (_, err, code) = site.run(&["task", "cancel", &id]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(show(&site, &id)["state"], "cancelled");
    assert!(wait(&agent, &client, &site, 0).await.is_none());
    let id = submit(&site, &[]);
    let delivered = wait(&agent, &client, &site, 5)
        .await
        .unwrap()
        .tasks
        .pop()
        .unwrap();
    site.run(&["task", "cancel", &id]);
    let told = wait(&agent, &client, &site, 30).await.unwrap();
    let (cluster_id, node_id) = (cluster(), agent.node.parse().unwrap());
    let scope = TaskScope {
        chain_id: CHAIN_ID,
        contract: &site.contract,
        cluster_id: &cluster_id,
        node_id: &node_id,
    };
    let key = agent.registered.as_ref().unwrap().task_public_key.unwrap();
    let taken_back = verify_cancellation(&told.cancel[0], &scope, &key, &ZebraVerifier).unwrap();
    assert_eq!(taken_back, hash(&agent, &site, &delivered));
    assert_ne!(show(&site, &id)["state"], "cancelled", "until the node says so");
    let mut result = result(&agent, taken_back);
    result.outcome = TaskOutcome::Cancelled;
    result.code = Some("task_cancelled".to_owned());
    sign(&agent, taken_back, &mut result);
    assert_eq!(send(&agent, &client, &site, &id, &result).await.status(), 200);
    assert_eq!(show(&site, &id)["state"], "cancelled");
    // Approval.
    let (out, err, code) = site.run(&INSTALL);
    assert_eq!(code, 0, "{err}");
    let id = out.trim();
    assert!(wait(&agent, &client, &site, 1).await.is_none());
    let (_, err, code) = site.run(&["task", "approve", id]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        wait(&agent, &client, &site, 30).await.unwrap().tasks[0]
            .task
            .task_id
            .as_str(),
        id
    );
    assert!(show(&site, id)["approved_by"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_the_catalogue_or_not_as_its_schema_says_is_never_submitted() {
    let site = Site::start().await;
    Agent::enrolled(&site, "node-0001").await;
    let refused = |kind: &str, params: &str| {
        let (_, err, code) = site.run(&["task", "submit", "node-0001", "--type", kind, "--params", params]);
        assert_ne!(code, 0, "{kind} {params}");
        err
    };
    assert!(refused("exec.shell", "{}").contains("task catalog"));
    assert!(refused("diag.health_probe", r#"{"command":"id"}"#).contains("unknown field"));
    assert!(refused("vm.terminate", r#"{"vm_id":"../../etc"}"#).contains("invalid_field"));
    assert!(refused("vm.terminate", r#"{"vm_id":"--help"}"#).contains("invalid_field"));
    assert!(refused("vm.terminate", "[]").contains("object"));
    let (_, err, code) = site.run(&["task", "submit", "node-9999", "--type", "diag.health_probe"]);
    assert!(code != 0 && err.contains("unknown_node"), "{err}");
    let (out, _, _) = site.run(&["task", "list", "-o", "json"]);
    assert_eq!(out.trim(), "[]");
    let (out, _, code) = site.run(&["task", "catalog"]);
    let golden = include_str!("../../../../schema/tasks/catalog.json");
    let (out, golden): (Value, Value) = (
        serde_json::from_str(&out).unwrap(),
        serde_json::from_str(golden).unwrap(),
    );
    assert!(
        code == 0 && out == golden,
        "task catalog prints schema/tasks/catalog.json"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_nodes_that_wait_for_tasks() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.stop.intake = Span::seconds(60);
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let path = wait_path(&agent.node.parse().unwrap());
    let request = agent
        .client(&site)
        .get(format!("{}{path}?wait_seconds=120", site.gateway()));
    let waits = tokio::spawn(request.send());
    // Until it is there.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waits.is_finished());
    let began = std::time::Instant::now();
    site.stop_daemon().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(waits.await.unwrap().unwrap().status(), 204);
}

/// What stands of a task in the audit log.
fn recorded(site: &Site, id: &str) -> Vec<String> {
    let (out, err, code) = site.run(&["audit", "export"]);
    assert_eq!(code, 0, "{err}");
    let rows = out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    rows.filter(|r| r["target"].as_str().unwrap().contains(id))
        .map(|r| r["action"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_scheduled_probe_the_result_alone_is_in_the_audit_log_and_of_a_persons_all() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let desk = Admin {
        home: Home::new(site.home()),
        config: site.config(),
        store: site.store().await,
        operator: None,
        gateway: Weak::new(),
    };
    let node = "node-0001".parse().unwrap();
    let probe = desk.submit_probe(&node, &cluster(), 600).await.unwrap();
    let asked = submit(&site, &[]);
    let delivered = wait(&agent, &client, &site, 5).await.unwrap().tasks;
    assert_eq!(delivered.len(), 2);
    for task in &delivered {
        let id = task.task.task_id.as_str();
        let good = result(&agent, hash(&agent, &site, task));
        assert_eq!(send(&agent, &client, &site, id, &good).await.status(), 200);
    }
    assert_eq!(recorded(&site, probe.task_id.as_str()), ["task.result"]);
    assert_eq!(
        recorded(&site, &asked),
        ["task.submit", "task.dispatch", "task.result"]
    );
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_submitted_where_its_node_waits_is_on_record_as_the_nodes_with_one_commit() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let token = admin::credential(&site, "operator", "1h");
    let probe = json!({"node_id": "node-0001", "type": "diag.health_probe"});
    let submitted = async |cluster: Option<&str>| -> Value {
        let mut body = probe.clone();
        body["cluster_id"] = cluster.into();
        let request = admin::request(&site, Method::POST, "/tasks", &token).json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    };
    // Nobody waits: it is in the queue.
    let first = submitted(None).await;
    assert_eq!(
        (&first["state"], &first["attempts"]),
        (&"queued".into(), &0.into())
    );
    let mut open = wait(&agent, &client, &site, 5).await.unwrap().tasks;
    // Another one is open: it is claimed behind it.
    let (waited, second) = tokio::join!(wait(&agent, &client, &site, 60), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        submitted(None).await
    });
    assert_eq!(second["state"], "queued");
    open.extend(waited.unwrap().tasks);
    for task in &open {
        let good = result(&agent, hash(&agent, &site, task));
        let id = task.task.task_id.as_str();
        assert_eq!(send(&agent, &client, &site, id, &good).await.status(), 200);
    }
    // It waits, and nothing else is open: the answer says that it has the task.
    for named in [None, Some(cluster())] {
        let named = named.as_ref().map(ClusterId::as_str);
        let (waited, row) = tokio::join!(wait(&agent, &client, &site, 60), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            submitted(named).await
        });
        assert_eq!(
            (&row["state"], &row["attempts"]),
            (&"dispatched".into(), &1.into())
        );
        let delivered = waited.unwrap().tasks.pop().unwrap();
        let id = row["task_id"].as_str().unwrap();
        assert_eq!((delivered.task.task_id.as_str(), delivered.attempt), (id, 1));
        let good = result(&agent, hash(&agent, &site, &delivered));
        assert_eq!(send(&agent, &client, &site, id, &good).await.status(), 200);
        assert_eq!(
            recorded(&site, id),
            ["task.submit", "task.dispatch", "task.result"]
        );
    }
    // A disabled node gets nothing, though it has waited.
    let (waited, row) = tokio::join!(ask(&agent, &client, &site, 10), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let args = ["node", "disable", "node-0001", "--reason", "maintenance"];
        tokio::task::block_in_place(|| assert_eq!(site.run(&args).2, 0));
        // The gateway looks for what was decided four times a second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        submitted(None).await
    });
    assert_ne!(waited.status(), 200);
    assert_eq!(row["state"], "queued");
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_laid_down_for_a_node_that_may_not_have_it_any_more_is_answered_as_queued() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.certificate_lifetime = Span::seconds(12);
    site.start_with(config).await;
    let token = admin::credential(&site, "operator", "1h");
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    // It waits, and its certificate's time is over meanwhile: that is seen where it is given the task.
    let (waited, row) = tokio::join!(ask(&agent, &client, &site, 18), async {
        tokio::time::sleep(Duration::from_secs(13)).await;
        let body = json!({"node_id": "node-0001", "type": "diag.health_probe"});
        let request = admin::request(&site, Method::POST, "/tasks", &token).json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        serde_json::from_slice::<Value>(&response.bytes().await.unwrap()).unwrap()
    });
    assert_eq!(problem(waited).await.0, 401);
    assert_eq!(
        (&row["state"], &row["attempts"], &row["dispatched_ms"]),
        (&"queued".into(), &0.into(), &Value::Null)
    );
    let id = row["task_id"].as_str().unwrap();
    let shown = show(&site, id);
    assert_eq!(
        (&shown["state"], &shown["attempts"]),
        (&row["state"], &row["attempts"])
    );
    assert_eq!(
        recorded(&site, id),
        ["task.submit", "task.dispatch", "task.dispatch"]
    );
}
