//! How many certificates a node may have at a time: no more than can be revoked.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use hpc_schema::gateway::{CertificateResponse, certificate_path, heartbeat_path};
use hpc_schema::time::UnixSeconds;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use virtengine_provider::clock;
use virtengine_provider::config::Config;
use virtengine_provider::enrol::{Which, record_certificate, revoke_certificates, revoked_fingerprints};
use virtengine_provider::identity::{Ca, Issued, NodeCsr, NodeSubject, PeerIdentity};

use crate::agent::{Agent, client, csr, der, post, problem, registered};
use crate::site::{Site, cluster, eventually};

fn fingerprint(pem: &str) -> String {
    PeerIdentity::from_der(&der(pem)).unwrap().fingerprint
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_renews_seventy_times_has_none_left_when_the_node_s_certificates_are_revoked() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let stolen = agent.client(&site);
    let path = certificate_path(&agent.node.parse().unwrap());
    let request = json!({ "csr": csr(&agent.tls) });
    let mut given = vec![agent.certificate.clone()];
    let mut refused = 0;
    for _ in 0..70 {
        let answer = post(&stolen, &site, &path, &request).await;
        if answer.status() == 200 {
            let renewed: CertificateResponse = answer.json().await.unwrap();
            given.push(renewed.certificate);
            continue;
        }
        refused += 1;
        let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(wait > 3600, "until the first one ends: {wait}");
        assert_eq!(problem(answer).await, (429, "rate_limited".into()));
    }
    assert_eq!((given.len(), refused), (64, 7));
    let list = site.run(&["certificate", "list", "-o", "json"]).0;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 64);
    let (out, err, code) = site.run(&["certificate", "revoke", "--node-id", "node-0001"]);
    assert!(code == 0 && out.contains("64 certificates"), "{out}{err}");
    let all: HashSet<String> = given.iter().map(|pem| fingerprint(pem)).collect();
    let store = site.store().await;
    assert_eq!(revoked_fingerprints(store.reader()).await.unwrap(), all);
    store.close().await;
    // The oldest, which used to be forgotten, and the newest.
    for pem in [&given[0], &given[63]] {
        let thief = client(&site.ca(), Some((pem.as_str(), &agent.tls)));
        eventually("it counts no more", async || {
            let body = agent.heartbeat_text(1, clock::now_ms());
            let answer = agent.try_send_text(&thief, &site, body).await;
            answer.is_ok_and(|a| a.status() == 401)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_under_way_when_the_node_s_certificates_are_revoked_gets_none() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let (cluster, node) = (cluster(), agent.node.parse().unwrap());
    let path = certificate_path(&node);
    let request = json!({ "csr": csr(&agent.tls) });
    let store = site.store().await;
    let mut tx = store.begin().await.unwrap();
    let which = Which::Node(&cluster, &node);
    let revoked = revoke_certificates(&mut tx, which, clock::now()).await;
    assert_eq!(revoked.unwrap(), 1);
    // Nobody else knows of it yet: the request is let in, and waits for the store.
    let commit = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tx.commit().await.unwrap();
    };
    let url = format!("{}{path}", site.gateway());
    let asked = client.post(url).body(request.to_string()).send();
    let (answer, ()) = tokio::join!(asked, commit);
    // Or the revocation has ended the connection before.
    if let Ok(answer) = answer {
        assert_eq!(problem(answer).await, (401, "identity_mismatch".to_owned()));
    }
    let all = revoked_fingerprints(store.reader()).await.unwrap();
    assert_eq!(all, HashSet::from([fingerprint(&agent.certificate)]));
    store.close().await;
    let list = site.run(&["certificate", "list", "-o", "json"]).0;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_revoked_with_its_node_though_a_clock_was_ahead_of_its_end_for_a_moment() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let stolen = agent.client(&site);
    assert!(agent.beat(&stolen, &site, 1).await.accepted);
    // As a gateway whose clock is ahead notes what the node recovers there.
    let ahead = clock::now().plus(2 * 86_400);
    let recovered = Issued {
        pem: String::new(),
        serial: "ab".repeat(20),
        fingerprint: "cd".repeat(32),
        issuer: "CN=Own".into(),
        not_after: ahead.plus(86_400),
    };
    let (cluster, node) = (cluster(), agent.node.parse().unwrap());
    let epoch = agent.registered.as_ref().unwrap().epoch;
    let store = site.store().await;
    let mut tx = store.begin().await.unwrap();
    let noted = record_certificate(&mut tx, &cluster, &node, epoch, &recovered, ahead).await;
    assert_eq!(noted.unwrap(), Ok(()));
    tx.commit().await.unwrap();
    store.close().await;
    let (out, err, code) = site.run(&["certificate", "revoke", "--node-id", "node-0001"]);
    assert!(code == 0 && out.contains("2 certificates"), "{out}{err}");
    eventually("the stolen one counts no more", async || {
        let body = agent.heartbeat_text(2, clock::now_ms());
        let answer = agent.try_send_text(&stolen, &site, body).await;
        answer.is_ok_and(|a| a.status() == 401)
    })
    .await;
}

/// A site that trusts another CA beside its own, which issues certificates to its node by itself.
struct Trusting {
    site: Site,
    agent: Agent,
    ca: Ca,
}

impl Trusting {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut site = Site::prepare().await;
        let (ca, _) = Ca::create(clock::now(), [9; 16]).unwrap();
        let trusted: PathBuf = site.home().join("ca/trusted");
        std::fs::create_dir_all(&trusted).unwrap();
        std::fs::write(trusted.join("site.crt"), ca.pem()).unwrap();
        let mut config = site.config();
        change(&mut config);
        site.start_with(config).await;
        let agent = Agent::enrolled(&site, "node-0001").await;
        Self { site, agent, ca }
    }

    fn epoch(&self) -> u64 {
        self.agent.registered.as_ref().unwrap().epoch
    }

    /// This CA dates what it issues back by an hour.
    fn issue(&self, from: UnixSeconds, serial: u8) -> (Issued, KeyPair) {
        self.issue_to(&self.agent.node, from, serial)
    }

    fn issue_to(&self, node: &str, from: UnixSeconds, serial: u8) -> (Issued, KeyPair) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let request = NodeCsr::from_pem(&csr(&key)).unwrap();
        let (cluster, node) = (cluster(), node.parse().unwrap());
        let subject = NodeSubject {
            cluster: &cluster,
            node: &node,
            epoch: self.epoch(),
        };
        let at = from.plus(3600);
        let issued = self.ca.issue_node(&request, &subject, at, 3600, [serial; 16]);
        (issued.unwrap(), key)
    }

    async fn beat(&self, (issued, key): &(Issued, KeyPair), sequence: u32) -> reqwest::Response {
        let client = client(&self.site.ca(), Some((&issued.pem, key)));
        let body = self.agent.heartbeat_text(sequence, clock::now_ms());
        self.agent.send_text(&client, &self.site, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_certificate_of_before_all_were_revoked_is_refused_when_it_is_first_seen() {
    let scene = Trusting::start().await;
    let unseen = scene.issue(clock::now().minus(5), 1);
    let (_, err, code) = scene
        .site
        .run(&["certificate", "revoke", "--node-id", "node-0001"]);
    assert_eq!(code, 0, "{err}");
    let refused = (401, "identity_mismatch".to_owned());
    // The second connection comes before anything is read anew.
    for _ in 0..2 {
        assert_eq!(problem(scene.beat(&unseen, 1).await).await, refused);
    }
    let list = scene.site.run(&["certificate", "list", "-o", "json"]).0;
    let list: Value = serde_json::from_str(&list).unwrap();
    let fingerprint = &unseen.0.fingerprint;
    let of = list.as_array().unwrap().iter();
    let of: Vec<_> = of.filter(|c| c["fingerprint"] == **fingerprint).collect();
    assert!(of.len() == 1 && of[0]["revoked_at"].is_number(), "{list}");
    // Again where nothing is left to be revoked: whoever was never seen is meant too.
    let (out, err, code) = scene
        .site
        .run(&["certificate", "revoke", "--node-id", "node-0001"]);
    assert!(code == 0 && out.contains("0 certificates"), "{out}{err}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let later = scene.issue(clock::now(), 2);
    assert_eq!(scene.beat(&later, 2).await.status(), 200);
    assert_eq!(problem(scene.beat(&unseen, 3).await).await, refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_certificate_that_nobody_could_revoke_is_refused_and_the_others_go_on() {
    let scene = Trusting::start().await;
    let (cluster, node) = (cluster(), scene.agent.node.parse().unwrap());
    let seen = scene.issue(clock::now(), 1);
    assert_eq!(scene.beat(&seen, 1).await.status(), 200);
    let store = scene.site.store().await;
    let mut tx = store.begin().await.unwrap();
    let now = clock::now();
    for i in 0.. {
        let filler = Issued {
            pem: String::new(),
            serial: format!("{i:040x}"),
            fingerprint: format!("{i:064x}"),
            issuer: "CN=Another".into(),
            not_after: now.plus(3600),
        };
        let recorded = record_certificate(&mut tx, &cluster, &node, scene.epoch(), &filler, now).await;
        if recorded.unwrap().is_err() {
            assert_eq!(i, 62, "with the node's own and the one that was seen");
            break;
        }
    }
    tx.commit().await.unwrap();
    store.close().await;
    let one_more = scene.issue(clock::now(), 2);
    let refused = (401, "identity_mismatch".to_owned());
    assert_eq!(problem(scene.beat(&one_more, 2).await).await, refused);
    assert_eq!(scene.beat(&seen, 3).await.status(), 200);
    let list = scene.site.run(&["certificate", "list", "-o", "json"]).0;
    assert!(!list.contains(&one_more.0.fingerprint), "{list}");
    // Once there is room, it is on record and counts.
    let first = format!("{:064x}", 0);
    let (_, err, code) = scene
        .site
        .run(&["certificate", "revoke", "--fingerprint", &first]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(scene.beat(&one_more, 4).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_certificate_of_a_node_that_is_not_on_record_takes_no_node_s_place() {
    let scene = Trusting::start_with(|config| config.gateway.max_connections = 1).await;
    let (site, agent) = (&scene.site, &scene.agent);
    let own = agent.client(site);
    assert!(agent.beat(&own, site, 1).await.accepted);
    let before = site.evicted().await;
    let (issued, key) = scene.issue_to("node-0002", clock::now(), 1);
    let stranger = client(&site.ca(), Some((&issued.pem, &key)));
    let path = heartbeat_path(&"node-0002".parse().unwrap());
    for _ in 0..3 {
        let answer = post(&stranger, site, &path, &json!({})).await;
        assert!(!answer.status().is_success(), "{answer:?}");
    }
    assert_eq!(site.evicted().await, before, "no node's connection went for it");
    // What it shows keeps it from nothing.
    let newcomer = Agent::new("node-0002");
    let token = site.token("node-0002", &newcomer.public(), "1h");
    let body = newcomer.register_body(&token, &newcomer.csr);
    registered(&stranger, site, &body).await;
}
