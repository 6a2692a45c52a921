//! The gateway's CA as an intermediate of somebody else's; somebody else's CA as the issuer of all.

use std::process::Command;

use hpc_schema::gateway::{CertificateResponse, certificate_path, certificate_uri, heartbeat_path};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;
use virtengine_provider::clock;
use virtengine_provider::identity::Ca;

use crate::agent::{Agent, client, csr, post, problem};
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

    /// A certificate `NAME.pem` for the key `NAME.key`.
    fn sign(&self, name: &str, subject: &str, extensions: &str, by: &str) {
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
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &file("csr"),
            "-CA",
            &ca,
            "-CAkey",
            &key,
            "-CAcreateserial",
            "-days",
            "1",
            "-extfile",
            extensions,
            "-out",
            &file("pem"),
        ]);
    }

    /// A node's certificate with the intermediate after it, and its key: names as docs/protocol.md, section 1.2, has them.
    fn node(&self, name: &str, agent: &Agent, epoch: u64) -> (String, KeyPair) {
        let uri = certificate_uri(&cluster(), &agent.node.parse().unwrap());
        self.write(
            "node.ext",
            &format!("subjectAltName=URI:{uri}\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n"),
        );
        self.key(name);
        let subject = format!("/CN={}/serialNumber={epoch}", agent.node);
        self.sign(name, &subject, "node.ext", "inter");
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
}
