//! The command line as a client of the admin listener: what an operator does who does not hold the directory.

use std::path::{Path, PathBuf};

use hpc_schema::gateway::REGISTER_PATH;
use serde_json::Value;
use virtengine_provider::db;

use crate::admin::id;
use crate::agent::{Agent, client, post, registered};
use crate::audit::unlocked;
use crate::site::{CLUSTER, Site, eventually, run};
use crate::tokens::{join_body, join_token};

/// Another machine: it has a credential, and no directory.
struct Elsewhere {
    url: String,
    ca: Option<PathBuf>,
    dir: tempfile::TempDir,
}

impl Elsewhere {
    fn of(site: &Site, scheme: &str) -> Self {
        let port = site.daemon.as_ref().unwrap().admin_addr().unwrap().port();
        Self {
            url: format!("{scheme}://localhost:{port}"),
            ca: None,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A credential of this role in a file of this name.
    fn credential(&self, site: &Site, role: &str) {
        let file = self.file(role);
        let made = site.run(&[
            "admin-token",
            "create",
            "--name",
            role,
            "--role",
            role,
            "--token-file",
            file.to_str().unwrap(),
        ]);
        assert_eq!(made.2, 0, "{}", made.1);
    }

    fn run(&self, credential: &str, args: &[&str]) -> (String, String, i32) {
        let file = self.file(credential);
        let mut all = args.to_vec();
        all.extend(["--admin", &self.url, "--credential-file", file.to_str().unwrap()]);
        let ca = self.ca.as_ref().map(|p| p.to_str().unwrap().to_owned());
        if let Some(ca) = &ca {
            all.extend(["--ca-file", ca]);
        }
        // In the clear no CA is needed.
        let none = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name.to_owned(), "/dev/null".to_owned()));
        let env = if self.url.starts_with("http://") {
            &none[..]
        } else {
            &[]
        };
        run(Path::new("/nonexistent"), env, &all)
    }

    fn done(&self, credential: &str, args: &[&str]) -> String {
        let (out, err, code) = self.run(credential, args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_does_from_elsewhere_what_it_may_with_the_same_words_and_exit_codes() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    site.wait_sequence(&agent.node, 1).await;
    let there = Elsewhere::of(&site, "http");
    for role in ["viewer", "operator", "admin"] {
        there.credential(&site, role);
    }
    // What is seen is the same, in every format.
    for args in [
        &["node", "list"] as &[&str],
        &["node", "list", "-o", "json"],
        &["node", "show", "node-0001", "-o", "yaml"],
        &["certificate", "list", "-o", "json"],
        &["node-token", "list"],
        &["node-token", "join-list"],
        &["node-token", "waiting"],
        &["command", "list", "-o", "json"],
        &["task", "list"],
        &["slot", "list"],
        &["alert", "list"],
    ] {
        eventually("the same words", async || {
            there.done("viewer", args) == site.run(args).0
        })
        .await;
    }
    assert!(there.done("viewer", &["status"]).contains("running: true"));
    // So is what is refused.
    for args in [
        &["node", "show", "node-none"] as &[&str],
        &["node", "watch", "node-none"],
        &["node", "enable", "node-0001"],
        &["command", "cancel", "../none"],
        &["node-token", "revoke", "none"],
        &["certificate", "revoke", "--serial", "17"],
        &["task", "show", "none"],
        &[
            "command",
            "send",
            "node-0001",
            "--type",
            "run_diagnostic",
            "--parameters",
            "{\"name\":\"rm -rf /\"}",
        ],
    ] {
        let (here, away) = (site.run(args), there.run("operator", args));
        assert_eq!(here, away, "{args:?}");
        assert_eq!(here.2, 1, "{args:?}: {}", here.1);
    }
    // A role that does not allow it.
    for (role, args) in [
        (
            "viewer",
            &["node", "disable", "node-0001", "--reason", "x"] as &[&str],
        ),
        (
            "viewer",
            &["task", "submit", "node-0001", "--type", "diag.health_probe"],
        ),
        ("operator", &["audit", "list"]),
        ("operator", &["admin-token", "list"]),
    ] {
        let (_, err, code) = there.run(role, args);
        assert!(
            code == 1 && err.contains("not_authorized") && err.contains("role"),
            "{args:?}: {code} {err}"
        );
    }
    // An operator decides.
    let said = there.done("operator", &["node", "disable", "node-0001", "--reason", "disk"]);
    assert_eq!(said, "node node-0001 is disabled\n");
    there.done("operator", &["node", "enable", "node-0001"]);
    let key = agent.public();
    let token = there.done(
        "operator",
        &[
            "node-token",
            "create",
            "--cluster-id",
            CLUSTER,
            "--node-id",
            "node-0002",
            "--pubkey",
            &key,
        ],
    );
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    let join = [
        "node-token",
        "join",
        "--cluster-id",
        CLUSTER,
        "--uses",
        "2",
        "--range",
        "10.0.0.0/8",
    ];
    there.done("operator", &join);
    let drained = there.done("operator", &["node", "drain", "node-0001", "--reason", "memory"]);
    assert!(drained.contains("is on chain: "), "{drained}");
    there.done("operator", &["node", "resume", "node-0001"]);
    // A task is watched without asking again and again, and its end is an exit code.
    let task = there.done(
        "operator",
        &["task", "submit", "node-0001", "--type", "diag.health_probe"],
    );
    let task = task.trim();
    let (out, err, code) = there.run("viewer", &["task", "watch", task, "--within", "3s"]);
    assert!(
        code == 1 && err.contains("still queued") && out.contains("queued"),
        "{out}{err}"
    );
    there.done("operator", &["task", "cancel", task]);
    let (out, err, code) = there.run("viewer", &["task", "watch", task]);
    assert!(
        code == 1 && err.contains("cancelled") && out.contains("cancelled"),
        "{out}{err}"
    );
    // An admin decides who else may, and reads who did what.
    let bob = there.done(
        "admin",
        &["admin-token", "create", "--name", "bob", "--role", "viewer"],
    );
    there.done("admin", &["admin-token", "revoke", id(bob.trim())]);
    let log = there.done("admin", &["audit", "export"]);
    let acts: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let disabled = acts
        .iter()
        .find(|a| a["action"] == "node.disable" && a["result"] == "done")
        .unwrap();
    assert_eq!(
        (&disabled["via"], &disabled["role"]),
        (&"admin_api".into(), &"operator".into())
    );
    there.done("admin", &["audit", "verify"]);
    assert!(
        there
            .done("admin", &["audit", "list", "--limit", "3"])
            .lines()
            .count()
            == 4
    );
    // What is the directory's alone.
    for args in [
        &["keys", "list"] as &[&str],
        &["backup", "create", "/tmp/x", "--passphrase-file", "/dev/null"],
    ] {
        let (_, err, code) = there.run("admin", args);
        assert!(code != 0 && err.contains("own machine"), "{args:?}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_end_is_gone_does_not_pass_from_elsewhere_either() {
    let site = Site::start().await;
    let there = Elsewhere::of(&site, "http");
    there.credential(&site, "admin");
    let said = there.done("admin", &["audit", "verify"]);
    assert_eq!(said, site.run(&["audit", "verify"]).0);
    let store = site.store().await;
    let mut tx = unlocked(&store).await;
    db::query("DELETE FROM audit WHERE seq = (SELECT MAX(seq) FROM audit)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    let (out, err, code) = there.run("admin", &["audit", "verify"]);
    assert!(code == 1 && err.contains("the log ends at row"), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_is_reached_by_tls_and_whatever_is_in_the_way_has_its_exit_code() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.admin.tls = true;
    site.start_with(config).await;
    let mut there = Elsewhere::of(&site, "https");
    there.credential(&site, "viewer");
    // Nobody has vouched for it yet.
    let (_, err, code) = there.run("viewer", &["node", "list"]);
    assert_eq!(code, 69, "{err}");
    there.ca = Some(site.home().join("ca/ca.crt"));
    there.done("viewer", &["node", "list"]);
    // In the clear there is nothing, and to another machine a credential never goes so.
    there.url = there.url.replace("https", "http");
    assert_eq!(there.run("viewer", &["node", "list"]).2, 69);
    there.url = "http://gateway.example.com:9465".to_owned();
    let (_, err, code) = there.run("viewer", &["node", "list"]);
    assert!(code == 78 && err.contains("https://"), "{err}");
    there.url = "https://localhost:1".to_owned();
    assert_eq!(there.run("viewer", &["node", "list"]).2, 69);
    there.url = Elsewhere::of(&site, "https").url;
    let (_, err, code) = there.run("nobody", &["node", "list"]);
    assert!(code == 78 && err.contains("--credential-file"), "{err}");
    std::fs::write(there.file("open"), "x").unwrap();
    let (_, err, code) = there.run("open", &["node", "list"]);
    assert!(code == 78 && err.contains("chmod 600"), "{err}");
    let (_, err, code) = run(
        Path::new("/nonexistent"),
        &[],
        &["node", "list", "--admin", &there.url],
    );
    assert!(code == 78 && err.contains("--credential-file"), "{err}");
    std::fs::copy(there.file("viewer"), there.file("forged")).unwrap();
    let forged = std::fs::read_to_string(there.file("forged")).unwrap();
    let head: Vec<_> = forged.splitn(3, '_').take(2).collect();
    let forged = format!("{}_{}", head.join("_"), "0".repeat(64));
    std::fs::write(there.file("forged"), forged).unwrap();
    let (_, err, code) = there.run("forged", &["node", "list"]);
    assert!(code == 1 && err.contains("not_authorized"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_wait_under_one_name_are_told_apart_from_elsewhere() {
    let site = Site::start().await;
    let there = Elsewhere::of(&site, "http");
    for role in ["viewer", "operator"] {
        there.credential(&site, role);
    }
    let open = client(&site.ca(), None);
    let token = join_token(&site, &["--uses", "5", "--approval"]);
    // Enough rivals that some key has the characters that a query writes otherwise.
    let mut node = Agent::new("node-0001");
    let rivals: Vec<Agent> = (0..4).map(|_| Agent::new("node-0001")).collect();
    let body = join_body(&node, &token);
    let asks = rivals.iter().map(|a| join_body(a, &token));
    for body in asks.chain([body.clone()]) {
        assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 202);
    }
    let approve = ["node-token", "approve", "node-0001"];
    let (here, away) = (site.run(&approve), there.run("operator", &approve));
    assert_eq!(here, away);
    assert!(here.2 == 1 && here.1.contains("--public-key"), "{}", here.1);
    let one = rivals[0].public();
    let reject = ["node-token", "reject", "node-0001", "--public-key", &one];
    let (_, err, code) = there.run("viewer", &reject);
    assert!(code == 1 && err.contains("not_authorized"), "{err}");
    for rival in &rivals {
        let key = rival.public();
        let said = there.done(
            "operator",
            &["node-token", "reject", "node-0001", "--public-key", &key],
        );
        assert_eq!(said, format!("the key {key} is refused as node node-0001\n"));
    }
    let key = node.public();
    there.done(
        "operator",
        &["node-token", "approve", "node-0001", "--public-key", &key],
    );
    node.take(registered(&open, &site, &body).await);
}
