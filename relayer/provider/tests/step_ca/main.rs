//! A real step-ca as the issuer of the certificates of gateway and nodes. Needs its program: `HPC_TEST_STEP_CA`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../it/agent.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod agent;
mod authority;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod site;

use hpc_schema::gateway::{certificate_uri, heartbeat_path};
use virtengine_provider::clock;

use agent::{Agent, client};
use authority::StepCa;
use site::{Site, cluster, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn step_ca_issues_and_renews_the_certificates_of_gateway_and_nodes_and_the_gateway_revokes_and_disables()
 {
    let ca = StepCa::start().await;
    let mut site = Site::prepare().await;
    let home = site.home();
    std::fs::create_dir_all(home.join("ca/trusted")).unwrap();
    std::fs::write(home.join("ca/trusted/step.crt"), ca.root()).unwrap();
    let (chain, key) = ca
        .issue("gateway", "/CN=localhost", &["localhost", "127.0.0.1"])
        .await;
    std::fs::write(home.join("gateway/server.crt"), chain).unwrap();
    std::fs::write(home.join("gateway/server.key"), key).unwrap();
    site.start_daemon().await;
    // It counts for 24 h: by its own life it is fresh.
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    eventually("the daemon is ready", async || site.ops("/readyz").await.0 == 200).await;
    let mut agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    agent.register_trusting(&site, &token, &ca.root()).await;
    let epoch = agent.registered.as_ref().unwrap().epoch;

    let uri = certificate_uri(&cluster(), &agent.node.parse().unwrap());
    let subject = format!("/CN={}/serialNumber={epoch}", agent.node);
    let (first, key) = ca.issue("node", &subject, &[&uri]).await;
    let pair = rcgen::KeyPair::from_pem(&key).unwrap();
    let one = client(&ca.root(), Some((&first, &pair)));
    assert!(agent.beat(&one, &site, 1).await.accepted);
    // Renewed by step-ca, over mutual TLS with the one that there is; the node goes on with either.
    let second = ca.renew(&first, &key).await;
    assert_ne!(first, second);
    let two = client(&ca.root(), Some((&second, &pair)));
    assert!(agent.beat(&two, &site, 2).await.accepted);
    assert!(agent.beat(&one, &site, 3).await.accepted);
    // Both are on record, with who issued them; the first is revoked alone.
    let list = site.run(&["certificate", "list", "-o", "json"]).0;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let theirs: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["issuer"] == "CN=step-ca of the site")
        .collect();
    assert_eq!(theirs.len(), 2, "{list}");
    let serial = ca.serial(&first);
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", &serial]);
    assert_eq!(code, 0, "{err}");
    let mut sequence = 3;
    eventually("the revoked one is refused", async || {
        sequence += 1;
        let body = agent.heartbeat_text(sequence, clock::now_ms());
        let path = heartbeat_path(&agent.node.parse().unwrap());
        let sent = one.post(format!("{}{path}", site.gateway())).body(body);
        sent.send().await.is_ok_and(|answer| answer.status() == 401)
    })
    .await;
    sequence += 1;
    assert!(agent.beat(&two, &site, sequence).await.accepted);
    // Whatever certificates it still gets: a node that is disabled is kept out.
    assert_eq!(
        site.run(&["node", "disable", "node-0001", "--reason", "stolen"])
            .2,
        0
    );
    eventually("the node is kept out", async || {
        sequence += 1;
        !agent.beat(&two, &site, sequence).await.accepted
    })
    .await;
    let third = ca.renew(&second, &key).await;
    let three = client(&ca.root(), Some((&third, &pair)));
    sequence += 1;
    assert!(!agent.beat(&three, &site, sequence).await.accepted);
    assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
    eventually("the node is let in again", async || {
        sequence += 1;
        agent.beat(&three, &site, sequence).await.accepted
    })
    .await;
}
