use hpc_schema::gateway::{CertificateResponse, certificate_path};
use hpc_schema::time::UnixSeconds;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use virtengine_provider::clock;
use virtengine_provider::identity::{Ca, NodeCsr, NodeSubject, PeerIdentity};

use crate::agent::{Agent, client, csr, der, post, problem};
use crate::raw;
use crate::site::{Site, cluster, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn intruders_are_turned_away_and_the_rest_is_served_on() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let other = Agent::enrolled(&site, "node-0002").await;
    let body = || agent.heartbeat_text(1, clock::now_ms());
    let mismatch = (403, "identity_mismatch".to_owned());

    let nobody = client(&site.ca(), None);
    assert_eq!(
        problem(agent.send_text(&nobody, &site, body()).await).await,
        mismatch,
        "no certificate"
    );
    let another = other.client(&site);
    assert_eq!(
        problem(agent.send_text(&another, &site, body()).await).await,
        mismatch,
        "another node's"
    );
    // The other node's certificate with a body that names this one, on its own path.
    let url = format!("{}/api/v1/hpc/nodes/node-0002/heartbeat", site.gateway());
    let swapped = another.post(url).body(body()).send().await.unwrap();
    assert_eq!(problem(swapped).await, mismatch, "another node's body");

    let url = format!("{}/api/v1/hpc/nodes/node-0001/heartbeat", site.gateway());
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let request = NodeCsr::from_pem(&csr(&key)).unwrap();
    let (foreign, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let node = "node-0001".parse().unwrap();
    let cluster = cluster();
    let subject = NodeSubject {
        cluster: &cluster,
        node: &node,
        epoch: agent.registered.as_ref().unwrap().epoch,
    };
    let forged = foreign
        .issue_node(&request, &subject, clock::now(), 3600, [1; 16])
        .unwrap();
    let forger = client(&site.ca(), Some((&forged.pem, &key)));
    assert!(
        forger.post(&url).body(body()).send().await.is_err(),
        "a foreign CA's certificate"
    );

    let ours = std::fs::read_to_string(site.home().join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let past = UnixSeconds(clock::now().0 - 7200);
    let expired = ours.issue_node(&request, &subject, past, 60, [2; 16]).unwrap();
    let late = client(&site.ca(), Some((&expired.pem, &key)));
    assert!(
        late.post(&url).body(body()).send().await.is_err(),
        "an expired certificate"
    );
    // The gateway's own certificate is good for no node.
    let (server, server_key) = ours
        .issue_server(&["localhost".into()], clock::now(), [3; 16])
        .unwrap();
    let server_key = KeyPair::from_pem(&server_key).unwrap();
    let posing = client(&site.ca(), Some((&server.pem, &server_key)));
    assert!(
        posing.post(&url).body(body()).send().await.is_err(),
        "the gateway's own certificate"
    );

    // Plain HTTP, TLS 1.2, garbage.
    let addr = site.daemon.as_ref().unwrap().gateway_addr();
    let mut plain = TcpStream::connect(addr).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"), "no plain HTTP");

    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
}

/// Requests of a thief: more than a node may make.
const THEFTS: u32 = 150;

#[tokio::test(flavor = "multi_thread")]
async fn whoever_floods_with_a_node_s_revoked_or_former_certificate_takes_nothing_of_the_node_s() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.requests_per_minute = 100;
    config.gateway.max_connections_per_node = 2;
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let node = agent.node.parse().unwrap();
    let stolen = (agent.certificate.clone(), &agent.tls);
    // The node has renewed its certificate, and the former one was revoked by its fingerprint.
    let request = json!({ "csr": csr(&agent.tls) });
    let renewed = post(&agent.client(&site), &site, &certificate_path(&node), &request).await;
    let renewed: CertificateResponse = renewed.json().await.unwrap();
    let fingerprint = PeerIdentity::from_der(&der(&stolen.0)).unwrap().fingerprint;
    let (_, err, code) = site.run(&["certificate", "revoke", "--fingerprint", &fingerprint]);
    assert_eq!(code, 0, "{err}");
    let refused = async |identity: (&str, &KeyPair)| {
        let thief = client(&site.ca(), Some(identity));
        let body = agent.heartbeat_text(1, clock::now_ms());
        let answer = agent.try_send_text(&thief, &site, body).await;
        answer.is_ok_and(|answer| answer.status() == 401)
    };
    eventually("the revocation", async || {
        refused((stolen.0.as_str(), stolen.1)).await
    })
    .await;
    // One of the registration before this one.
    let ours = std::fs::read_to_string(site.home().join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let cluster = cluster();
    let subject = NodeSubject {
        cluster: &cluster,
        node: &node,
        epoch: agent.registered.as_ref().unwrap().epoch - 1,
    };
    let csr = NodeCsr::from_pem(&csr(&key)).unwrap();
    let former = ours
        .issue_node(&csr, &subject, clock::now(), 3600, [4; 16])
        .unwrap();

    let own = client(&site.ca(), Some((&renewed.certificate, &agent.tls)));
    let mut sequence = 100;
    assert!(agent.beat(&own, &site, sequence).await.accepted);
    let before = site.evicted().await;
    let mut idle = Vec::new();
    for identity in [(stolen.0.as_str(), stolen.1), (former.pem.as_str(), &key)] {
        for _ in 0..4 {
            idle.push(raw::tls(&site, Some(identity)).await);
        }
        for theft in 0..THEFTS {
            assert!(refused(identity).await, "{theft}");
            if theft % 25 == 0 {
                sequence += 1;
                assert!(agent.beat(&own, &site, sequence).await.accepted);
            }
        }
        sequence += 1;
        assert!(agent.beat(&own, &site, sequence).await.accepted);
    }
    assert_eq!(site.evicted().await, before, "no connection went for a thief's");
}
