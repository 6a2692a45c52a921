//! Who did what: in the store, exported, and anchored on chain.

use hpc_schema::registry::AnchorView;
use serde_json::{Value, json};
use virtengine_provider::audit::{Chain, KIND, Row, page};
use virtengine_provider::config::Span;
use virtengine_provider::db;

use crate::agent::Agent;
use crate::site::{Site, cluster, eventually};

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

async fn anchors(site: &Site) -> Vec<AnchorView> {
    let all = site
        .client
        .anchors(cluster(), Some(KIND.to_owned()), None, None)
        .await;
    all.unwrap().value.anchors
}

/// Writes the whole log anew, as if another had done it all: every digest is right, and so is the head.
async fn forge(site: &Site) {
    let store = site.store().await;
    let rows = page(store.reader(), 0, 1000).await.unwrap();
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
    for drop in unlock.into_iter().chain(["DELETE FROM audit"]) {
        db::query(drop).execute(&mut *tx).await.unwrap();
    }
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
