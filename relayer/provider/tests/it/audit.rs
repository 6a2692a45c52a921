//! Who did what: in the store, exported, and anchored on chain.

use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::registry::AnchorView;
use reqwest::Method;
use serde_json::{Value, json};
use virtengine_provider::audit::{Chain, KIND, Row, head, page};
use virtengine_provider::config::Span;
use virtengine_provider::db::{self, Transaction};
use virtengine_provider::store::Store;

use crate::admin::{credential, id, request};
use crate::agent::{Agent, client, post};
use crate::site::{Site, cluster, eventually, run};
use crate::tasks::INSTALL;
use crate::tokens::{join_body, join_token};

fn log(site: &Site) -> Vec<Value> {
    let (out, err, code) = site.run(&["audit", "export"]);
    assert_eq!(code, 0, "{err}");
    out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_privileged_act_of_the_command_line_is_on_record_with_its_end() {
    let site = Site::start().await;
    let agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    let act = |args: &[&str]| site.run(args);
    assert_ne!(
        act(&["node", "disable", "node-0001", "--reason", "x"]).2,
        0,
        "not on record yet"
    );
    assert_ne!(act(&["node-token", "revoke", "nothing"]).2, 0);
    let listed: Value = serde_json::from_str(&act(&["node-token", "list", "-o", "json"]).0).unwrap();
    let jti = listed[0]["jti"].as_str().unwrap().to_owned();
    assert_eq!(act(&["node-token", "revoke", &jti]).2, 0);
    assert_eq!(
        act(&[
            "node-token",
            "join",
            "--cluster-id",
            "hpc-cluster-1",
            "--uses",
            "3"
        ])
        .2,
        0
    );
    assert_eq!(act(&["keys", "add", "second"]).2, 0);
    assert_eq!(act(&["reload"]).2, 0);
    let file = site.home().join("viewer.token");
    let made = act(&[
        "admin-token",
        "create",
        "--name",
        "grafana",
        "--role",
        "viewer",
        "--token-file",
        file.to_str().unwrap(),
    ]);
    assert_eq!(made.2, 0, "{}", made.1);
    let secret = std::fs::read_to_string(&file).unwrap();
    assert!(!made.0.contains(&secret));
    let found: Vec<(String, String)> = log(&site)
        .iter()
        .map(|r| {
            (
                r["action"].as_str().unwrap().to_owned(),
                r["result"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("init", "done"),
        ("node_token.create", "done"),
        ("node.disable", "refused"),
        ("token.revoke", "refused"),
        ("token.revoke", "done"),
        ("join_token.create", "done"),
        ("keys.add", "done"),
        ("reload", "done"),
        ("admin_token.create", "done"),
    ];
    assert_eq!(found, expected.map(|(a, r)| (a.to_owned(), r.to_owned())));
    let text = site.run(&["audit", "export"]).0;
    assert!(
        !text.contains(&token) && !text.contains(secret.splitn(3, '_').last().unwrap()),
        "{text}"
    );
    assert!(
        log(&site)
            .iter()
            .all(|r| r["via"] == "command_line" && r["role"] == "admin")
    );
    // What was refused by the store itself leaves neither the act nor its row half done.
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

/// Who decides, by either way, and what the log says of it.
struct Desk<'a> {
    site: &'a Site,
    store: Store,
    /// Rows up to here have been looked at.
    seen: u64,
    /// By whom the last decision was, in which role, which way.
    by: [String; 3],
    done: bool,
    said: String,
}

impl<'a> Desk<'a> {
    /// Whatever stands in the log by now is not looked at.
    async fn at(site: &'a Site) -> Self {
        let store = site.store().await;
        let seen = head(store.reader()).await.unwrap().seq;
        Self {
            site,
            store,
            seen,
            by: <[String; 3]>::default(),
            done: false,
            said: String::new(),
        }
    }

    /// At the admin listener, with the credential of this role.
    async fn asks(&mut self, (role, token): &(&str, String), path: &str, body: &Value) {
        let request = request(self.site, Method::POST, &format!("/{path}"), token).json(body);
        let answer = request.send().await.unwrap();
        let name = format!("{role} ({})", id(token));
        self.by = [name.as_str(), role, "admin_api"].map(str::to_owned);
        self.done = answer.status().is_success();
        self.said = answer.text().await.unwrap();
    }

    /// By the command line, which does it in the name of whoever calls it.
    fn runs(&mut self, args: &[&str]) {
        let mut env = self.site.env();
        env.push(("SUDO_USER".to_owned(), "alice".to_owned()));
        let (_, err, code) = run(&self.site.home(), &env, args);
        self.by = ["alice", "admin", "command_line"].map(str::to_owned);
        self.done = code == 0;
        self.said = err;
    }

    /// The last decision ended so and has left this row and no other, not counting what the daemon writes by itself.
    async fn left(&mut self, action: &str, target: &str, result: &str) {
        assert_eq!(self.done, result == "done", "{action} {target}: {}", self.said);
        let mut rows = page(self.store.reader(), self.seen, 1000).await.unwrap();
        self.seen = rows.last().map_or(self.seen, |r| r.seq);
        rows.retain(|r| r.via != "daemon");
        let rows: Vec<_> = rows
            .into_iter()
            .map(|r| [r.actor, r.role, r.via, r.action, r.target, r.result])
            .collect();
        let [by, role, via] = self.by.each_ref().map(String::as_str);
        assert_eq!(rows, [[by, role, via, action, target, result]]);
    }
}

/// Two nodes that wait for approval, and two tasks that do, by their ids.
async fn wait_for_approval(site: &Site) -> [String; 2] {
    let join = join_token(site, &["--uses", "9", "--approval"]);
    let open = client(&site.ca(), None);
    for node in ["node-0002", "node-0003"] {
        let body = join_body(&Agent::new(node), &join);
        assert_eq!(post(&open, site, REGISTER_PATH, &body).await.status(), 202);
    }
    [0; 2].map(|_| {
        let (out, err, code) = site.run(&INSTALL);
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    })
}

/// Without a GPU.
fn slot(number: u8) -> Value {
    json!({
        "slot_id": format!("slot-{number}"), "slot_index": number,
        "nvme_device": format!("/dev/disk/by-id/nvme-{number}"), "vcpu_count": 1, "memory_mib": 192,
        "mac_address": format!("52:54:00:00:00:0{number}"), "private_ip": format!("10.77.0.1{number}"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_at_the_admin_listener_leaves_one_row_refused_or_not() {
    let site = Site::start().await;
    let _agent = Agent::enrolled(&site, "node-0001").await;
    let [task, other] = wait_for_approval(&site).await;
    let [bob, eve] = ["viewer"; 2].map(|r| id(&credential(&site, r, "1h")).to_owned());
    let [operator, admin] = ["operator", "admin"].map(|r| (r, credential(&site, r, "1h")));
    let mut desk = Desk::at(&site).await;
    let none = json!({});

    let new = |name: &str| json!({ "name": name, "role": "viewer", "expires_seconds": 60 });
    desk.asks(&admin, "admin-tokens", &new("carol")).await;
    desk.left("admin_token.create", "admin token of carol", "done")
        .await;
    desk.asks(&admin, "admin-tokens", &new("car ol")).await;
    desk.left("admin_token.create", "admin token of car ol", "refused")
        .await;
    let (life, target) = (json!({ "expires_seconds": 60 }), format!("admin token {bob}"));
    desk.asks(&admin, &format!("admin-tokens/{bob}/rotate"), &life)
        .await;
    desk.left("admin_token.rotate", &target, "done").await;
    desk.asks(&admin, "admin-tokens/no-such-token/rotate", &life)
        .await;
    desk.left("admin_token.rotate", "admin token no-such-token", "refused")
        .await;
    let path = format!("admin-tokens/{eve}/revoke");
    let target = format!("admin token {eve}");
    for result in ["done", "refused"] {
        desk.asks(&admin, &path, &none).await;
        desk.left("admin_token.revoke", &target, result).await;
    }

    let path = "registrations/node-0002/approve";
    desk.asks(&operator, path, &none).await;
    desk.left("registration.approve", "node hpc-cluster-1/node-0002", "done")
        .await;
    desk.asks(&operator, path, &none).await;
    desk.left("registration.approve", "node node-0002", "refused")
        .await;

    let path = format!("tasks/{task}/approve");
    let target = format!("task hpc-cluster-1/{task} of node-0001");
    for result in ["done", "refused"] {
        desk.asks(&admin, &path, &none).await;
        desk.left("task.approve", &target, result).await;
    }
    let path = format!("tasks/{other}/cancel");
    let target = format!("task hpc-cluster-1/{other} of node-0001");
    for result in ["done", "refused"] {
        desk.asks(&operator, &path, &none).await;
        desk.left("task.cancel", &target, result).await;
    }
    // Of one that is nowhere on record as well.
    for (who, what) in [(&admin, "approve"), (&operator, "cancel")] {
        desk.asks(who, &format!("tasks/no-such-task/{what}"), &none).await;
        desk.left(&format!("task.{what}"), "task no-such-task", "refused")
            .await;
    }

    for (node, result) in [("node-0001", "done"), ("node-9999", "refused")] {
        let body = json!({ "node_id": node, "slot": slot(0) });
        desk.asks(&operator, "slots", &body).await;
        desk.left("slot.add", &format!("slot {node}/slot-0"), result)
            .await;
    }
    for (slot, result) in [("slot-0", "done"), ("slot-9", "refused")] {
        let path = format!("nodes/node-0001/slots/{slot}/retire");
        desk.asks(&admin, &path, &none).await;
        desk.left("slot.retire", &format!("slot node-0001/{slot}"), result)
            .await;
    }
    desk.store.close().await;
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_by_the_command_line_leaves_one_row_refused_or_not() {
    let site = Site::start().await;
    let _agent = Agent::enrolled(&site, "node-0001").await;
    let [task, other] = wait_for_approval(&site).await;
    let [bob, eve] = ["viewer"; 2].map(|r| id(&credential(&site, r, "1h")).to_owned());
    let mut desk = Desk::at(&site).await;

    for (name, result) in [("carol", "done"), ("car ol", "refused")] {
        desk.runs(&["admin-token", "create", "--name", name, "--role", "viewer"]);
        desk.left("admin_token.create", &format!("admin token of {name}"), result)
            .await;
    }
    for (id, result) in [(bob.as_str(), "done"), ("no-such-token", "refused")] {
        desk.runs(&["admin-token", "rotate", id]);
        desk.left("admin_token.rotate", &format!("admin token {id}"), result)
            .await;
    }
    for result in ["done", "refused"] {
        desk.runs(&["admin-token", "revoke", &eve]);
        desk.left("admin_token.revoke", &format!("admin token {eve}"), result)
            .await;
    }
    for (target, result) in [
        ("node hpc-cluster-1/node-0003", "done"),
        ("node node-0003", "refused"),
    ] {
        desk.runs(&["node-token", "approve", "node-0003"]);
        desk.left("registration.approve", target, result).await;
    }
    for (act, id) in [("approve", &task), ("cancel", &other)] {
        let target = format!("task hpc-cluster-1/{id} of node-0001");
        for (id, target, result) in [
            (id.as_str(), target.as_str(), "done"),
            (id.as_str(), target.as_str(), "refused"),
            ("no-such-task", "task no-such-task", "refused"),
        ] {
            desk.runs(&["task", act, id]);
            desk.left(&format!("task.{act}"), target, result).await;
        }
    }
    for (node, result) in [("node-0001", "done"), ("node-9999", "refused")] {
        desk.runs(&["slot", "add", node, "--slot", &slot(1).to_string()]);
        desk.left("slot.add", &format!("slot {node}/slot-1"), result)
            .await;
    }
    for (slot, result) in [("slot-1", "done"), ("slot-9", "refused")] {
        desk.runs(&["slot", "retire", "node-0001", slot]);
        desk.left("slot.retire", &format!("slot node-0001/{slot}"), result)
            .await;
    }
    desk.store.close().await;
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}

async fn anchors(site: &Site) -> Vec<AnchorView> {
    let all = site
        .client
        .anchors(cluster(), Some(KIND.to_owned()), None, None)
        .await;
    all.unwrap().value.anchors
}

/// A transaction in which rows can be changed and removed behind the store's back.
pub(crate) async fn unlocked(store: &Store) -> Transaction {
    let mut tx = store.begin().await.unwrap();
    let unlock = if store.is_shared() {
        [
            "DROP TRIGGER audit_is_never_changed ON audit",
            "DROP TRIGGER audit_is_never_emptied ON audit",
        ]
    } else {
        [
            "DROP TRIGGER audit_is_never_changed",
            "DROP TRIGGER audit_is_never_shortened",
        ]
    };
    for drop in unlock {
        db::query(drop).execute(&mut *tx).await.unwrap();
    }
    tx
}

/// Writes the whole log anew, as if another had done it all: every digest is right, and so is the head.
async fn forge(site: &Site) {
    let store = site.store().await;
    let rows = page(store.reader(), 0, 1000).await.unwrap();
    let mut tx = unlocked(&store).await;
    db::query("DELETE FROM audit").execute(&mut *tx).await.unwrap();
    let mut chain = Chain::default();
    for row in rows {
        let mut row = Row {
            actor: "somebody else".to_owned(),
            previous: hex::encode(chain.digest),
            ..row
        };
        let digest = row.digest_after(&chain.digest);
        row.digest = hex::encode(digest);
        db::query("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
            .bind(i64::try_from(row.seq).unwrap())
            .bind(i64::try_from(row.at).unwrap())
            .bind(&row.actor)
            .bind(&row.role)
            .bind(&row.via)
            .bind(&row.action)
            .bind(&row.target)
            .bind(&row.result)
            .bind(&row.detail)
            .bind(chain.digest.as_slice())
            .bind(digest.as_slice())
            .execute(&mut *tx)
            .await
            .unwrap();
        chain.follow(&row).unwrap();
    }
    db::query("UPDATE audit_head SET digest = ?")
        .bind(chain.digest.as_slice())
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_anchors_the_logs_head_on_chain_and_a_log_written_anew_does_not_pass() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.audit.anchor_interval = Span::seconds(1);
    config.chain.clusters = vec![cluster()];
    site.start_with(config).await;
    eventually("the first anchor", async || !anchors(&site).await.is_empty()).await;
    let first = anchors(&site).await;
    assert_eq!(
        site.run(&[
            "node-token",
            "join",
            "--cluster-id",
            "hpc-cluster-1",
            "--uses",
            "3"
        ])
        .2,
        0
    );
    eventually("the second anchor", async || {
        anchors(&site).await.len() > first.len()
    })
    .await;
    let verify = ["audit", "verify", "--chain", "-o", "json"];
    eventually("every row anchored", async || {
        let found: Value = serde_json::from_str(&site.run(&verify).0).unwrap_or_default();
        found["rows"].is_number() && found["rows"] == found["chain"]["anchored_up_to"]
    })
    .await;
    // A quiet log costs nothing.
    let count = anchors(&site).await.len();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(anchors(&site).await.len(), count);
    site.stop_daemon().await;
    let (out, err, code) = site.run(&verify);
    assert_eq!(code, 0, "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["rows"], found["chain"]["anchored_up_to"], "{out}");
    assert_eq!(
        (&found["chain"]["anchors"], &found["chain"]["missing"]),
        (&json!(count), &json!([]))
    );
    let file = site.home().join("audit.jsonl");
    std::fs::write(&file, site.run(&["audit", "export"]).0).unwrap();
    forge(&site).await;
    assert_eq!(site.run(&["audit", "verify"]).2, 0, "by itself it looks sound");
    let (out, err, code) = site.run(&verify);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("anchored on chain"), "{err}");
    // The export from before still passes, and one of its rows altered does not.
    let file_args = [&verify[..], &["--file", file.to_str().unwrap()]].concat();
    assert_eq!(site.run(&file_args).2, 0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replacen("\"result\":\"done\"", "\"result\":\"failed\"", 1),
    )
    .unwrap();
    let (_, err, code) = site.run(&file_args);
    assert!(code == 1 && err.contains("row 1 was altered"), "{err}");
}
