//! Certificates and trusted CAs change while connections are open.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hpc_schema::gateway::{CertificateResponse, HeartbeatResponse, certificate_path, heartbeat_path};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use virtengine_provider::clock;
use virtengine_provider::identity::{Ca, NodeCsr, NodeSubject};

use crate::agent::{Agent, answer, client, csr, post};
use crate::process::Process;
use crate::raw;
use crate::site::{Site, cluster, eventually};

/// What ends within a second has so long on a machine that does much else.
const AT_MOST: Duration = Duration::from_secs(5);

/// The certificate that a new connection is shown.
async fn shown(site: &Site) -> Vec<u8> {
    let tls = raw::tls(site, None).await;
    tls.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// The node asks for its next certificate, over the connection that it has.
async fn renew(over: &reqwest::Client, site: &Site, agent: &Agent) -> CertificateResponse {
    let path = certificate_path(&agent.node.parse().unwrap());
    let answer = post(over, site, &path, &json!({ "csr": csr(&agent.tls) })).await;
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_gateway_certificate_is_taken_into_use_and_a_bad_one_is_not_while_connections_stay() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    let daemon = site.daemon.as_ref().unwrap();
    let (cert, key) = (
        site.home().join("gateway/server.crt"),
        site.home().join("gateway/server.key"),
    );
    let ours = std::fs::read_to_string(site.home().join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let first = shown(&site).await;
    let (next, next_key) = ours.issue_server(&names, clock::now(), [3; 16]).unwrap();
    std::fs::write(&cert, &next.pem).unwrap();
    // The certificate alone does not fit the key that is there.
    assert!(daemon.reload().await.is_err());
    let said = site.ops("/readyz").await.1;
    assert!(
        said.contains("reload_failed") && said.contains("gateway/server.key: is not the key"),
        "{said}"
    );
    assert_eq!(shown(&site).await, first);
    std::fs::write(&key, next_key.as_bytes()).unwrap();
    daemon.reload().await.unwrap();
    assert!(!site.ops("/readyz").await.1.contains("reload_failed"));
    let second = shown(&site).await;
    assert_ne!(second, first);
    // A key that others may read, with its file and mode.
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let said = daemon.reload().await.unwrap_err().to_string();
    assert!(
        said.contains("gateway/server.key") && said.contains("mode 640"),
        "{said}"
    );
    assert!(site.ops("/readyz").await.1.contains("mode 640"));
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    assert!(
        agent.beat(&client, &site, 2).await.accepted,
        "the open connection stays"
    );
    // Another CA's, one without the gateway's name, and no certificate at all.
    let (foreign, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let other_name = vec!["elsewhere.example".to_owned()];
    for (pem, secret) in [
        foreign.issue_server(&names, clock::now(), [4; 16]),
        ours.issue_server(&other_name, clock::now(), [5; 16]),
    ]
    .map(|made| made.map(|(c, k)| (c.pem, k.to_string())).unwrap())
    .into_iter()
    .chain([("nothing".to_owned(), "nothing".to_owned())])
    {
        std::fs::write(&cert, pem).unwrap();
        std::fs::write(&key, secret).unwrap();
        assert!(daemon.reload().await.is_err());
        assert_eq!(shown(&site).await, second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_two_cas_are_let_in_during_a_change_of_ca_and_of_one_afterwards() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let mutual = agent.client(&site);
    let (other, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let request = NodeCsr::from_pem(&csr(&key)).unwrap();
    let (cluster, node) = (cluster(), agent.node.parse().unwrap());
    let subject = NodeSubject {
        cluster: &cluster,
        node: &node,
        epoch: agent.registered.as_ref().unwrap().epoch,
    };
    let issued = other
        .issue_node(&request, &subject, clock::now(), 3600, [1; 16])
        .unwrap();
    let theirs = || client(&site.ca(), Some((&issued.pem, &key)));
    let url = format!("{}{}", site.gateway(), certificate_path(&node));
    assert!(
        theirs().post(&url).body("{}").send().await.is_err(),
        "not trusted yet"
    );
    let dir = site.home().join("ca/trusted");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("next.crt"), other.pem()).unwrap();
    assert_eq!(site.run(&["reload"]).2, 0);
    eventually("both are let in", async || {
        theirs().post(&url).body("{}").send().await.is_ok()
    })
    .await;
    assert!(agent.beat(&theirs(), &site, 1).await.accepted);
    assert!(agent.beat(&agent.client(&site), &site, 2).await.accepted);
    // Agents learn of both with their next certificate.
    let renewed = renew(&mutual, &site, &agent).await;
    assert_eq!(renewed.ca, format!("{}{}", site.ca(), other.pem()));
    // What is no CA refuses the reload as a whole.
    std::fs::write(dir.join("leaf.crt"), &issued.pem).unwrap();
    assert!(site.daemon.as_ref().unwrap().reload().await.is_err());
    assert!(agent.beat(&theirs(), &site, 3).await.accepted);
    std::fs::remove_dir_all(&dir).unwrap();
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    assert!(
        theirs().post(&url).body("{}").send().await.is_err(),
        "trusted no more"
    );
    assert!(agent.beat(&agent.client(&site), &site, 4).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_ca_whose_time_is_over_is_left_out_and_keeps_the_daemon_from_nothing() {
    let mut site = Site::prepare().await;
    let (past, _) = Ca::create(clock::now().minus(11 * 365 * 86_400), [9; 16]).unwrap();
    let file = site.home().join("ca/trusted/previous.crt");
    std::fs::create_dir_all(site.home().join("ca/trusted")).unwrap();
    std::fs::write(&file, past.pem()).unwrap();
    site.start_daemon().await;
    eventually("it is ready, and says so", async || {
        let (status, said) = site.ops("/readyz").await;
        status == 200 && said.contains("previous.crt has ended")
    })
    .await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    assert_eq!(
        renew(&client, &site, &agent).await.ca,
        site.ca(),
        "nobody is told to trust it"
    );
    // A renewed certificate of the gateway is taken.
    let ours = std::fs::read_to_string(site.home().join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let first = shown(&site).await;
    let (next, key) = ours.issue_server(&names, clock::now(), [3; 16]).unwrap();
    std::fs::write(site.home().join("gateway/server.crt"), &next.pem).unwrap();
    std::fs::write(site.home().join("gateway/server.key"), key.as_bytes()).unwrap();
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    assert_ne!(shown(&site).await, first);
    std::fs::remove_file(file).unwrap();
    eventually("nothing more is said", async || {
        !site.ops("/readyz").await.1.contains("previous.crt")
    })
    .await;
}

/// A certificate for the gateway by somebody else's CA, which has so long of its day left.
fn of_a_day(by: &CertifiedIssuer<'_, KeyPair>, left: Duration) -> (String, String) {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    let now = i64::try_from(clock::now().0).unwrap();
    let until = OffsetDateTime::from_unix_timestamp(now).unwrap() + left;
    params.not_before = until - Duration::from_secs(86_400);
    params.not_after = until;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Somebody else's CA, which is trusted at this site.
fn outside(site: &Site) -> CertifiedIssuer<'static, KeyPair> {
    outside_until(site, CertificateParams::default().not_after)
}

/// The same, which ends then.
fn outside_until(site: &Site, until: OffsetDateTime) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.not_after = until;
    params.distinguished_name.push(DnType::CommonName, "Site root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let outside = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::create_dir_all(site.home().join("ca/trusted")).unwrap();
    std::fs::write(site.home().join("ca/trusted/site.crt"), outside.pem()).unwrap();
    outside
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_refuses_a_certificate_that_no_agent_takes_and_says_at_once_of_another_that_it_ends() {
    let mut site = Site::prepare().await;
    let outside = outside(&site);
    let home = site.home();
    let put = |(chain, key): (String, String)| {
        std::fs::write(home.join("gateway/server.crt"), chain).unwrap();
        std::fs::write(home.join("gateway/server.key"), key).unwrap();
    };
    // Of the last sixth of its day, and at its end: agents may come back, and what waits is settled.
    for hours in [3, 0] {
        put(of_a_day(&outside, Duration::from_secs(hours * 3600)));
        site.start_daemon().await;
        let said = site.ops("/readyz").await.1;
        assert!(said.contains("server_certificate"), "{hours} h: {said}");
        site.stop_daemon().await;
    }
    put(of_a_day(&outside, Duration::from_secs(23 * 3600)));
    site.start_daemon().await;
    assert!(!site.ops("/readyz").await.1.contains("server_certificate"));
    // Its CA is trusted no more: what a reload keeps out, a start does not let in.
    std::fs::remove_file(home.join("ca/trusted/site.crt")).unwrap();
    let why = site
        .daemon
        .as_ref()
        .unwrap()
        .reload()
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("leads neither to ca/ca.crt"), "{why}");
    site.stop_daemon().await;
    for command in [&["config", "check"][..], &["run"][..]] {
        let (_, err, code) = site.run(command);
        assert!(code == 78 && err.contains(&why), "{command:?}: {code} {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_and_says_so_where_the_ca_has_ended_with_the_certificate_that_it_issued() {
    let mut site = Site::prepare().await;
    let now = i64::try_from(clock::now().0).unwrap();
    let outside = outside_until(&site, OffsetDateTime::from_unix_timestamp(now - 60).unwrap());
    let (chain, key) = of_a_day(&outside, Duration::ZERO);
    std::fs::write(site.home().join("gateway/server.crt"), chain).unwrap();
    std::fs::write(site.home().join("gateway/server.key"), key).unwrap();
    site.start_daemon().await;
    let said = site.ops("/readyz").await.1;
    assert!(said.contains("server_certificate"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_certificate_of_a_day_is_fresh_and_a_reload_says_and_unsays_when_it_is_not() {
    let site = Site::start().await;
    let outside = outside(&site);
    let home = site.home();
    for (hours, fresh) in [(23, true), (3, false), (7, true)] {
        let (chain, key) = of_a_day(&outside, Duration::from_secs(hours * 3600));
        std::fs::write(home.join("gateway/server.crt"), chain).unwrap();
        std::fs::write(home.join("gateway/server.key"), key).unwrap();
        site.daemon.as_ref().unwrap().reload().await.unwrap();
        let said = site.ops("/readyz").await.1;
        assert_eq!(said.contains("server_certificate"), !fresh, "{hours} h: {said}");
        assert!(!said.contains("certificate_unused"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ca_itself_is_changed_by_a_reload_and_no_node_is_shut_out() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let late = Agent::enrolled(&site, "node-0002").await;
    let before = agent.client(&site);
    assert!(agent.beat(&before, &site, 1).await.accepted);
    let former = site.ca();
    let (next, next_key) = Ca::create(clock::now(), [9; 16]).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let (server, server_key) = next.issue_server(&names, clock::now(), [3; 16]).unwrap();
    let home = site.home();
    std::fs::create_dir_all(home.join("ca/trusted")).unwrap();
    for (file, text) in [
        ("ca/trusted/previous.crt", former.as_str()),
        ("ca/ca.crt", next.pem()),
        ("ca/ca.key", &next_key),
        ("gateway/server.crt", &server.pem),
        ("gateway/server.key", &server_key),
    ] {
        std::fs::write(home.join(file), text).unwrap();
    }
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    // On the connection that it has, the node goes on and gets a certificate of the next CA.
    assert!(agent.beat(&before, &site, 2).await.accepted);
    let renewed = renew(&before, &site, &agent).await;
    assert_eq!(renewed.ca, format!("{}{former}", next.pem()));
    let after = client(next.pem(), Some((&renewed.certificate, &agent.tls)));
    assert!(agent.beat(&after, &site, 3).await.accepted);
    // Who has not renewed yet is let in until the former CA is trusted no more.
    let slow = client(next.pem(), Some((&late.certificate, &late.tls)));
    assert!(late.beat(&slow, &site, 1).await.accepted);
    std::fs::remove_file(home.join("ca/trusted/previous.crt")).unwrap();
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    let shut = client(next.pem(), Some((&late.certificate, &late.tls)));
    let url = format!(
        "{}{}",
        site.gateway(),
        certificate_path(&late.node.parse().unwrap())
    );
    assert!(
        shut.post(&url).body("{}").send().await.is_err(),
        "trusted no more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_is_trusted_no_more_ends_the_open_connections_of_its_nodes_and_no_others() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let (other, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let (third, _) = Ca::create(clock::now(), [8; 16]).unwrap();
    let dir = site.home().join("ca/trusted");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("other.crt"), other.pem()).unwrap();
    let daemon = site.daemon.as_ref().unwrap();
    daemon.reload().await.unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let request = NodeCsr::from_pem(&csr(&key)).unwrap();
    let (cluster, node) = (cluster(), agent.node.parse().unwrap());
    let subject = NodeSubject {
        cluster: &cluster,
        node: &node,
        epoch: agent.registered.as_ref().unwrap().epoch,
    };
    let issued = other.issue_node(&request, &subject, clock::now(), 3600, [1; 16]);
    let issued = issued.unwrap();
    // No more than a node may have.
    let ours = agent.client(&site);
    assert!(agent.beat(&ours, &site, 1).await.accepted);
    let mut theirs = raw::tls(&site, Some((&issued.pem, &key))).await;
    let mut idle = raw::tls(&site, Some((&agent.certificate, &agent.tls))).await;
    let mut byte = [0; 1];
    let a_while = Duration::from_millis(500);
    // One that is added ends nothing.
    std::fs::write(dir.join("third.crt"), third.pem()).unwrap();
    daemon.reload().await.unwrap();
    assert!(timeout(a_while, theirs.read(&mut byte)).await.is_err());
    std::fs::remove_file(dir.join("other.crt")).unwrap();
    daemon.reload().await.unwrap();
    let ended = timeout(AT_MOST, theirs.read(&mut byte)).await;
    assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
    assert!(timeout(a_while, idle.read(&mut byte)).await.is_err());
    assert!(agent.beat(&ours, &site, 2).await.accepted);
}

async fn beat(
    agent: &Agent,
    process: &Process,
    client: &reqwest::Client,
    sequence: u32,
) -> HeartbeatResponse {
    let path = heartbeat_path(&agent.node.parse().unwrap());
    let url = format!("https://localhost:{}{path}", process.port);
    let body = agent.heartbeat_text(sequence, clock::now_ms());
    answer(client.post(url).body(body).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_is_taken_into_use_by_sighup_and_a_bad_one_is_not() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let process = Process::start(&site, None);
    let client = agent.client(&site);
    let path = site.home().join("config.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let interval =
        |response: HeartbeatResponse| response.config_updates.and_then(|u| u.sampling_interval_seconds);
    assert_eq!(interval(beat(&agent, &process, &client, 1).await), None);
    let edit = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
    };
    let mut sequence = 1;
    // One key that may change, one that needs a restart, on the connection that is open.
    edit("sampling_interval_seconds: null", "sampling_interval_seconds: 20");
    process.hang_up();
    eventually("the new interval", async || {
        sequence += 1;
        interval(beat(&agent, &process, &client, sequence).await) == Some(20)
    })
    .await;
    // What cannot work changes nothing, and readyz names the key.
    for (to, names) in [
        ("sampling_interval_seconds: 5", "agents.sampling_interval_seconds"),
        (
            "sampling_intervall_seconds: 30",
            "did you mean `sampling_interval_seconds`?",
        ),
    ] {
        edit("sampling_interval_seconds: null", to);
        process.hang_up();
        eventually(names, async || process.ready().await.contains(names)).await;
        sequence += 1;
        assert_eq!(
            interval(beat(&agent, &process, &client, sequence).await),
            Some(20)
        );
    }
    // By the command line as well, which clears what was wrong.
    edit("sampling_interval_seconds: null", "sampling_interval_seconds: 40");
    assert_eq!(site.run(&["reload"]).2, 0);
    eventually("the newest interval", async || {
        sequence += 1;
        interval(beat(&agent, &process, &client, sequence).await) == Some(40)
    })
    .await;
    eventually("no complaint", async || {
        !process.ready().await.contains("reload_failed")
    })
    .await;
    let log = site.run(&["audit", "export"]).0;
    let changes: Vec<&str> = log.lines().filter(|l| l.contains("config.change")).collect();
    assert_eq!(changes.len(), 2, "{log}");
    assert!(
        changes[0].contains("agents.sampling_interval_seconds"),
        "{}",
        changes[0]
    );
    // Limits of the gateway too, on the connection that is open.
    edit("max_body_bytes: 65536", "max_body_bytes: 32768");
    process.hang_up();
    let path = heartbeat_path(&agent.node.parse().unwrap());
    let url = format!("https://localhost:{}{path}", process.port);
    eventually("smaller bodies alone", async || {
        sequence += 1;
        let body = agent.heartbeat_text(sequence, clock::now_ms()) + &" ".repeat(33_000);
        client.post(&url).body(body).send().await.unwrap().status() == 413
    })
    .await;
    // That file names no interval any more: answers lack what is set no more.
    sequence += 1;
    let answer = beat(&agent, &process, &client, sequence).await;
    assert!(answer.accepted);
    assert_eq!(interval(answer), None);
}
