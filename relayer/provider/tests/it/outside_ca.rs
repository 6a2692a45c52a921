//! The gateway's CA as an intermediate of somebody else's; somebody else's CA as the issuer of all.

use std::process::Command;
use std::time::Duration;

use hpc_schema::gateway::{CertificateResponse, certificate_path, certificate_uri, heartbeat_path};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use virtengine_provider::clock;
use virtengine_provider::control::touch;
use virtengine_provider::db::query;
use virtengine_provider::identity::{Ca, PeerIdentity};

use crate::agent::{Agent, client, csr, der, post, problem};
use crate::raw;
use crate::site::{Site, cluster, eventually};

fn authority(name: &str, is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = is_ca;
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intermediate_of_an_outside_ca_vouches_for_the_gateway_and_for_nodes() {
    let mut site = Site::prepare().await;
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let unlimited = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(authority("Site root", unlimited), key()).unwrap();
    let inner_key = key();
    let leaves_only = IsCa::Ca(BasicConstraints::Constrained(0));
    let inner = authority("Site HPC intermediate", leaves_only)
        .signed_by(&inner_key, &root)
        .unwrap();
    let ca = Ca::from_pem(&inner.pem(), &inner_key.serialize_pem()).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let (server, server_key) = ca.issue_server(&names, clock::now(), [3; 16]).unwrap();
    for (file, text) in [
        ("ca/ca.crt", inner.pem()),
        ("ca/ca.key", inner_key.serialize_pem()),
        ("gateway/server.crt", server.pem),
        ("gateway/server.key", server_key.to_string()),
    ] {
        std::fs::write(site.home().join(file), text).unwrap();
    }
    site.start_daemon().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    // Whoever trusts the root alone finds the way: the gateway shows the intermediate.
    let by_root = client(&root.pem(), Some((&agent.certificate, &agent.tls)));
    assert!(agent.beat(&by_root, &site, 2).await.accepted);
    let renewed: CertificateResponse = post(
        &by_root,
        &site,
        &certificate_path(&agent.node.parse().unwrap()),
        &json!({ "csr": csr(&agent.tls) }),
    )
    .await
    .json()
    .await
    .unwrap();
    let again = client(&root.pem(), Some((&renewed.certificate, &agent.tls)));
    assert!(agent.beat(&again, &site, 3).await.accepted);
}

/// An authority as somebody runs it with `openssl`: a root that stays in its safe, and an intermediate that issues.
struct Outside {
    dir: tempfile::TempDir,
}

impl Outside {
    fn openssl(&self, args: &[&str]) -> String {
        let out = Command::new("openssl")
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .expect("openssl is needed");
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    }

    fn new() -> Self {
        let new = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        new.write(
            "ca.ext",
            "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n",
        );
        new.key("root");
        new.openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            "root.key",
            "-subj",
            "/CN=Site root",
            "-days",
            "3650",
            "-addext",
            "keyUsage=critical,keyCertSign",
            "-out",
            "root.pem",
        ]);
        new.key("inter");
        new.sign("inter", "/CN=Site HPC issuer", "ca.ext", "root");
        new
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).unwrap()
    }

    fn key(&self, name: &str) {
        let file = format!("{name}.key");
        self.openssl(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-out",
            &file,
        ]);
    }

    /// A certificate `NAME.pem` for the key `NAME.key`, with a serial number by chance.
    fn sign(&self, name: &str, subject: &str, extensions: &str, by: &str) {
        self.sign_with(name, subject, extensions, by, &["-CAcreateserial"]);
    }

    fn sign_with(&self, name: &str, subject: &str, extensions: &str, by: &str, serial: &[&str]) {
        let file = |end: &str| format!("{name}.{end}");
        let (ca, key) = (format!("{by}.pem"), format!("{by}.key"));
        self.openssl(&[
            "req",
            "-new",
            "-key",
            &file("key"),
            "-subj",
            subject,
            "-out",
            &file("csr"),
        ]);
        let (csr, pem) = (file("csr"), file("pem"));
        let mut args = vec!["x509", "-req", "-in", &csr, "-CA", &ca, "-CAkey", &key];
        args.extend(serial);
        args.extend(["-days", "1", "-extfile", extensions, "-out", &pem]);
        self.openssl(&args);
    }

    /// A node's certificate with the intermediate after it, and its key: names as docs/protocol.md, section 1.2, has them.
    fn node(&self, name: &str, agent: &Agent, epoch: u64) -> (String, KeyPair) {
        self.node_with(name, agent, epoch, &["-CAcreateserial"])
    }

    fn node_with(&self, name: &str, agent: &Agent, epoch: u64, serial: &[&str]) -> (String, KeyPair) {
        let uri = certificate_uri(&cluster(), &agent.node.parse().unwrap());
        self.write(
            "node.ext",
            &format!("subjectAltName=URI:{uri}\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n"),
        );
        self.key(name);
        let subject = format!("/CN={}/serialNumber={epoch}", agent.node);
        self.sign_with(name, &subject, "node.ext", "inter", serial);
        let chain = self.read(&format!("{name}.pem")) + &self.read("inter.pem");
        let key = KeyPair::from_pem(&self.read(&format!("{name}.key"))).unwrap();
        (chain, key)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_ca_issues_and_renews_the_certificates_of_gateway_and_nodes_and_they_are_revoked_here() {
    let outside = Outside::new();
    let mut site = Site::prepare().await;
    let home = site.home();
    std::fs::create_dir_all(home.join("ca/trusted")).unwrap();
    std::fs::write(home.join("ca/trusted/site.crt"), outside.read("root.pem")).unwrap();
    outside.write(
        "gw.ext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n",
    );
    outside.key("gw");
    outside.sign("gw", "/CN=gateway", "gw.ext", "inter");
    let chain = outside.read("gw.pem") + &outside.read("inter.pem");
    std::fs::write(home.join("gateway/server.crt"), chain).unwrap();
    std::fs::write(home.join("gateway/server.key"), outside.read("gw.key")).unwrap();
    site.start_daemon().await;
    let root = outside.read("root.pem");
    let mut agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    agent.register_trusting(&site, &token, &root).await;
    let epoch = agent.registered.as_ref().unwrap().epoch;

    let (first, first_key) = outside.node("first", &agent, epoch);
    let one = client(&root, Some((&first, &first_key)));
    assert!(agent.beat(&one, &site, 1).await.accepted);
    // Renewed outside; the former counts beside it until its time is over.
    let (second, second_key) = outside.node("second", &agent, epoch);
    let two = client(&root, Some((&second, &second_key)));
    assert!(agent.beat(&two, &site, 2).await.accepted);
    assert!(agent.beat(&one, &site, 3).await.accepted);
    // Of an earlier registration, or without the way to the root, it is none.
    let (other, other_key) = outside.node("other", &agent, epoch - 1);
    let body = agent.heartbeat_text(4, clock::now_ms());
    let of_other = client(&root, Some((&other, &other_key)));
    assert_eq!(
        problem(agent.send_text(&of_other, &site, body).await).await,
        (401, "identity_mismatch".into())
    );
    let leaf = outside.read("second.pem");
    let bare = client(&root, Some((&leaf, &second_key)));
    let url = format!(
        "{}{}",
        site.gateway(),
        certificate_path(&agent.node.parse().unwrap())
    );
    assert!(bare.post(&url).body("{}").send().await.is_err());

    // What was seen is on record, and is revoked like one of our own; the open connection ends.
    let serial = outside.openssl(&["x509", "-in", "first.pem", "-noout", "-serial"]);
    let serial = serial.trim().trim_start_matches("serial=").to_lowercase();
    let (list, ..) = site.run(&["certificate", "list"]);
    assert!(list.contains(&serial), "{serial} is not in {list}");
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", &serial]);
    assert_eq!(code, 0, "{err}");
    eventually("the revoked one is refused", async || {
        let body = agent.heartbeat_text(4, clock::now_ms());
        let path = heartbeat_path(&agent.node.parse().unwrap());
        let sent = one.post(format!("{}{path}", site.gateway())).body(body);
        sent.send().await.is_ok_and(|answer| answer.status() == 401)
    })
    .await;
    assert!(agent.beat(&two, &site, 5).await.accepted);

    // What an intermediate has issued ends with its root, on the open connection.
    let mut open = raw::tls_trusting(&site, &root, Some((&second, &second_key))).await;
    let home = site.home();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let ours = std::fs::read_to_string(home.join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let (server, server_key) = ours.issue_server(&names, clock::now(), [3; 16]).unwrap();
    std::fs::write(home.join("gateway/server.crt"), server.pem).unwrap();
    std::fs::write(home.join("gateway/server.key"), server_key.as_bytes()).unwrap();
    std::fs::remove_file(home.join("ca/trusted/site.crt")).unwrap();
    site.daemon.as_ref().unwrap().reload().await.unwrap();
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(Duration::from_secs(5), open.read(&mut byte)).await;
    assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cas_may_give_the_same_serial_number_and_each_certificate_is_revoked_by_itself() {
    let (one, two) = (Outside::new(), Outside::new());
    let mut site = Site::prepare().await;
    let trusted = site.home().join("ca/trusted");
    std::fs::create_dir_all(&trusted).unwrap();
    for (outside, file) in [(&one, "one.crt"), (&two, "two.crt")] {
        std::fs::write(trusted.join(file), outside.read("root.pem")).unwrap();
    }
    site.start_daemon().await;
    let first = Agent::enrolled(&site, "node-0001").await;
    let second = Agent::enrolled(&site, "node-0002").await;
    // With its top bit set: DER puts a zero byte before it, openssl does not show one.
    let serial = ["-set_serial", "0xab00000000000000000000000000000000000017"];
    let shown = "ab00000000000000000000000000000000000017";
    let mut clients = Vec::new();
    for (outside, agent) in [(&one, &first), (&two, &second)] {
        let epoch = agent.registered.as_ref().unwrap().epoch;
        let (chain, key) = outside.node_with("leaf", agent, epoch, &serial);
        let by_openssl = outside.openssl(&["x509", "-in", "leaf.pem", "-noout", "-serial"]);
        assert_eq!(by_openssl.trim().to_lowercase(), format!("serial={shown}"));
        let client = client(&site.ca(), Some((&chain, &key)));
        assert!(agent.beat(&client, &site, 1).await.accepted);
        clients.push(client);
    }
    let list: serde_json::Value =
        serde_json::from_str(&site.run(&["certificate", "list", "-o", "json"]).0).unwrap();
    let mut of: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["serial"] == shown)
        .collect();
    of.sort_by_key(|c| c["node_id"].as_str().unwrap().to_owned());
    assert_eq!(of.len(), 2, "{list}");
    assert_eq!(of[0]["issuer"], "CN=Site HPC issuer");
    let fingerprint = of[0]["fingerprint"].as_str().unwrap();
    // By its number alone nobody knows which is meant; it is said how to name it.
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", shown]);
    assert!(code == 1 && err.contains(fingerprint), "{err}");
    let colons = "AB:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:17";
    assert_eq!(site.run(&["certificate", "revoke", "--serial", colons]).2, 1);
    let (_, err, code) = site.run(&[
        "certificate",
        "revoke",
        "--fingerprint",
        &fingerprint.to_uppercase(),
    ]);
    assert_eq!(code, 0, "{err}");
    eventually("the revoked one is refused", async || {
        let body = first.heartbeat_text(2, clock::now_ms());
        let path = heartbeat_path(&first.node.parse().unwrap());
        let sent = clients[0].post(format!("{}{path}", site.gateway())).body(body);
        sent.send().await.is_ok_and(|answer| answer.status() == 401)
    })
    .await;
    assert!(second.beat(&clients[1], &site, 2).await.accepted);
    // Now only one of this number counts.
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", colons]);
    assert_eq!(code, 0, "{err}");
}

/// As it was recorded before fingerprints were kept: by its serial number, DER's zero byte included.
async fn recorded_of_old(site: &Site, pem: &str, revoked: bool) {
    let peer = PeerIdentity::from_der(&der(pem)).unwrap();
    let serial = format!("00{}", peer.serial);
    let now = i64::try_from(clock::now().0).unwrap();
    let mut tx = site.store().await.begin().await.unwrap();
    query(
        "INSERT INTO certificate (fingerprint, serial, issuer, cluster_id, node_id, epoch, issued_at_s, not_after_s, revoked_at_s)
         VALUES (?1, ?1, '', ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(&serial)
    .bind(peer.cluster_id.as_str())
    .bind(peer.node_id.as_str())
    .bind(i64::try_from(peer.epoch.unwrap()).unwrap())
    .bind(now)
    .bind(i64::try_from(peer.not_after.0).unwrap())
    .bind(revoked.then_some(now))
    .execute(&mut *tx)
    .await
    .unwrap();
    touch(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_before_fingerprints_is_on_record_once_and_revoked_by_its_serial_number() {
    let outside = Outside::new();
    let mut site = Site::prepare().await;
    let trusted = site.home().join("ca/trusted");
    std::fs::create_dir_all(&trusted).unwrap();
    std::fs::write(trusted.join("site.crt"), outside.read("root.pem")).unwrap();
    site.start_daemon().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let epoch = agent.registered.as_ref().unwrap().epoch;
    let shown = [
        "ab00000000000000000000000000000000000017",
        "cd00000000000000000000000000000000000018",
    ];
    let mut clients = Vec::new();
    for (name, serial, revoked) in [("counts", shown[0], false), ("revoked", shown[1], true)] {
        let number = format!("0x{serial}");
        let (chain, key) = outside.node_with(name, &agent, epoch, &["-set_serial", &number]);
        recorded_of_old(&site, &outside.read(&format!("{name}.pem")), revoked).await;
        clients.push(client(&site.ca(), Some((&chain, &key))));
    }
    let refused = async |client: &reqwest::Client| {
        let body = agent.heartbeat_text(1, clock::now_ms());
        let path = heartbeat_path(&agent.node.parse().unwrap());
        let sent = client.post(format!("{}{path}", site.gateway())).body(body);
        sent.send().await.is_ok_and(|answer| answer.status() == 401)
    };
    eventually("what was revoked of old is refused", async || {
        refused(&clients[1]).await
    })
    .await;
    assert!(agent.beat(&clients[0], &site, 100).await.accepted);
    // Each has been seen by now, and is on record once.
    let list: serde_json::Value =
        serde_json::from_str(&site.run(&["certificate", "list", "-o", "json"]).0).unwrap();
    for (serial, revoked) in [(shown[0], false), (shown[1], true)] {
        let of = list.as_array().unwrap().iter();
        let of: Vec<_> = of
            .filter(|c| c["serial"].as_str().unwrap().trim_start_matches('0') == serial)
            .collect();
        assert_eq!(of.len(), 1, "{list}");
        // What was revoked by its number stays so, whoever comes with it.
        let (name, issuer) = if revoked {
            (42, "")
        } else {
            (64, "CN=Site HPC issuer")
        };
        assert_eq!(of[0]["fingerprint"].as_str().unwrap().len(), name, "{list}");
        assert_eq!(of[0]["issuer"], issuer);
        assert_eq!(of[0]["revoked_at"].is_number(), revoked, "{list}");
    }
    assert!(refused(&clients[1]).await, "still");
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", shown[0]]);
    assert_eq!(code, 0, "{err}");
    eventually("the revoked one is refused", async || refused(&clients[0]).await).await;

    // One that is revoked before it was ever seen again.
    let (chain, key) = outside.node_with("unseen", &agent, epoch, &["-set_serial", "0xef17"]);
    recorded_of_old(&site, &outside.read("unseen.pem"), false).await;
    let (_, err, code) = site.run(&["certificate", "revoke", "--serial", "ef17"]);
    assert_eq!(code, 0, "{err}");
    let unseen = client(&site.ca(), Some((&chain, &key)));
    eventually("the unseen one is refused", async || refused(&unseen).await).await;
}
