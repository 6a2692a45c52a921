//! Who is turned away at the gateway and at the operators' door: every time, in the log once, while nodes are served on. Most
//! intruders have an address of their own, by which the log tells them from the others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hpc_schema::gateway::{REGISTER_PATH, heartbeat_path};
use hpc_schema::time::UnixSeconds;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use reqwest::{Client, Response};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tracing::subscriber::DefaultGuard;
use virtengine_provider::clock;
use virtengine_provider::identity::{Ca, NodeCsr, NodeSubject};

use crate::agent::{Agent, client_at, csr, post, problem};
use crate::logs::Logs;
use crate::site::{Site, cluster, eventually};

/// How often each tries.
const TRIES: usize = 5;

/// What the log says of them.
const BARE: &str = "a request without the node's certificate";
const EXPIRED: &str = "a TLS handshake with a certificate that has expired";
const FOREIGN: &str = "a TLS handshake with a certificate of a CA that is not trusted";
const REVOKED: &str = "a certificate that was revoked";
const TLS12: &str = "a TLS handshake without TLS 1.3";
const PLAIN: &str = "a connection that speaks no TLS";

/// A site, a node that belongs there, and one intruder after the other.
struct Scene {
    site: Site,
    logs: Logs,
    agent: Agent,
    client: Client,
    sequence: u32,
    intruders: u8,
    _logging: DefaultGuard,
}

impl Scene {
    async fn start() -> Self {
        let (logs, logging) = Logs::start();
        let mut site = Site::prepare().await;
        let mut config = site.config();
        config.admin.tls = true;
        site.start_with(config).await;
        let agent = Agent::enrolled(&site, "node-0001").await;
        let client = agent.client(&site);
        Self {
            site,
            logs,
            agent,
            client,
            sequence: 0,
            intruders: 0,
            _logging: logging,
        }
    }

    /// The next intruder's address.
    fn address(&mut self) -> IpAddr {
        self.intruders += 1;
        Ipv4Addr::new(127, 0, 0, 10 + self.intruders).into()
    }

    /// Whoever came from there stands in the log with this, once, and with nothing else; the node is served on.
    async fn turned_away(&mut self, from: IpAddr, what: &str) {
        let of_it = format!("from={from} ");
        let told = self.logs.lines("refused: ");
        let told: Vec<_> = told.iter().filter(|line| line.contains(&of_it)).collect();
        assert_eq!(told.len(), 1, "{what}: {told:#?}");
        assert!(told[0].contains(&format!("refused: {what}; ")), "{told:#?}");
        self.sequence += 1;
        let served = self.agent.beat(&self.client, &self.site, self.sequence).await;
        assert!(served.accepted, "{what}: {served:?}");
    }

    fn heartbeat(&self) -> String {
        let path = heartbeat_path(&self.agent.node.parse().unwrap());
        format!("{}{path}", self.site.gateway())
    }

    /// Sends a heartbeat to this node's path, again and again, each time on a connection of its own.
    async fn tries(
        &self,
        from: IpAddr,
        identity: Option<(&str, &KeyPair)>,
    ) -> Vec<reqwest::Result<Response>> {
        let mut answers = Vec::new();
        for _ in 0..TRIES {
            let client = client_at(Some(from), &self.site.ca(), identity);
            let body = self.agent.heartbeat_text(1_000_000, clock::now_ms());
            answers.push(client.post(self.heartbeat()).body(body).send().await);
        }
        answers
    }

    /// Refused with an answer, each time.
    async fn is_answered(&mut self, identity: Option<(&str, &KeyPair)>, status: u16, what: &str) {
        let from = self.address();
        for answer in self.tries(from, identity).await {
            assert_eq!(answer.unwrap().status().as_u16(), status, "{what}");
        }
        self.turned_away(from, what).await;
    }

    /// Refused in the handshake, each time.
    async fn is_cut_off(&mut self, identity: (&str, &KeyPair), what: &str) {
        let from = self.address();
        for answer in self.tries(from, Some(identity)).await {
            assert!(answer.is_err(), "{answer:?}");
        }
        self.turned_away(from, what).await;
    }

    /// The node's own certificate, by TLS 1.2, again and again.
    async fn tries_tls12(&self, from: IpAddr) {
        let gateway = self.site.daemon.as_ref().unwrap().gateway_addr();
        for _ in 0..TRIES {
            let stream = connect(from, gateway).await;
            let name = ServerName::try_from("localhost").unwrap();
            let shaken = TlsConnector::from(Arc::new(tls12(self)))
                .connect(name, stream)
                .await;
            assert!(shaken.is_err(), "TLS 1.2");
        }
    }

    /// HTTP without TLS, again and again.
    async fn tries_plain(&self, from: IpAddr) {
        let gateway = self.site.daemon.as_ref().unwrap().gateway_addr();
        for _ in 0..TRIES {
            let mut plain = connect(from, gateway).await;
            plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            drop(plain.read_to_end(&mut answer).await);
            assert!(!answer.starts_with(b"HTTP"), "no plain HTTP");
        }
    }

    /// The site's CA, as its key's file has it.
    fn ours(&self) -> Ca {
        let key = std::fs::read_to_string(self.site.home().join("ca/ca.key")).unwrap();
        Ca::from_pem(&self.site.ca(), &key).unwrap()
    }

    /// Certificates for the node's name that do not count: one that has expired, and one of a foreign CA.
    fn worthless(&self, key: &KeyPair) -> (String, String) {
        let past = UnixSeconds(clock::now().0 - 7200);
        let (foreign, _) = Ca::create(clock::now(), [9; 16]).unwrap();
        (
            self.certificate(&self.ours(), past, 60, key),
            self.certificate(&foreign, clock::now(), 3600, key),
        )
    }

    /// A certificate for the node's name, by this CA.
    fn certificate(&self, by: &Ca, since: UnixSeconds, seconds: u64, key: &KeyPair) -> String {
        let request = NodeCsr::from_pem(&csr(key)).unwrap();
        let (cluster, node) = (cluster(), self.agent.node.parse().unwrap());
        let subject = NodeSubject {
            cluster: &cluster,
            node: &node,
            epoch: self.agent.registered.as_ref().unwrap().epoch,
        };
        let serial = clock::random().unwrap();
        by.issue_node(&request, &subject, since, seconds, serial)
            .unwrap()
            .pem
    }
}

#[tokio::test]
async fn whoever_shows_no_certificate_or_one_that_does_not_count_is_refused_every_time_and_logged_once() {
    let mut scene = Scene::start().await;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    scene.is_answered(None, 403, BARE).await;

    let (expired, forged) = scene.worthless(&key);
    scene.is_cut_off((&expired, &key), EXPIRED).await;
    scene.is_cut_off((&forged, &key), FOREIGN).await;

    let other = Agent::enrolled(&scene.site, "node-0002").await;
    let theirs = Some((other.certificate.as_str(), &other.tls));
    let what = "a request that this node's certificate does not allow";
    scene.is_answered(theirs, 403, what).await;

    // One of the node's own that was revoked; the one that it goes on with is another.
    let stolen = Agent::enrolled(&scene.site, "node-0003").await;
    let (_, err, code) = scene
        .site
        .run(&["certificate", "revoke", "--node-id", "node-0003"]);
    assert_eq!(code, 0, "{err}");
    let from = scene.address();
    let path = heartbeat_path(&stolen.node.parse().unwrap());
    let url = format!("{}{path}", scene.site.gateway());
    let ca = scene.site.ca();
    // None: the connection on which it asked was cut off, as one that is open in that moment is.
    let again = async || {
        let body = stolen.heartbeat_text(1, clock::now_ms());
        let client = client_at(Some(from), &ca, Some((&stolen.certificate, &stolen.tls)));
        let answer = client.post(&url).body(body).send().await.ok()?;
        Some(answer.status().as_u16())
    };
    eventually("the revocation", async || again().await == Some(401)).await;
    for _ in 0..TRIES {
        assert_eq!(again().await, Some(401));
    }
    scene.turned_away(from, REVOKED).await;
    let told = scene.logs.lines(REVOKED);
    assert!(told[0].contains("node=node-0003"), "{told:#?}");

    let from = scene.address();
    scene.tries_tls12(from).await;
    scene.turned_away(from, TLS12).await;

    let from = scene.address();
    scene.tries_plain(from).await;
    scene.turned_away(from, PLAIN).await;
}

#[tokio::test]
async fn different_intruders_behind_one_address_have_a_line_each() {
    let mut scene = Scene::start().await;
    let from = scene.address();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let (expired, forged) = scene.worthless(&key);
    for identity in [
        Some((expired.as_str(), &key)),
        Some((forged.as_str(), &key)),
        None,
    ] {
        for answer in scene.tries(from, identity).await {
            assert!(answer.is_err() || identity.is_none(), "{answer:?}");
        }
    }
    scene.tries_tls12(from).await;
    scene.tries_plain(from).await;
    let of_it = format!("from={from} ");
    let told = scene.logs.lines("refused: ");
    let told: Vec<_> = told.iter().filter(|line| line.contains(&of_it)).collect();
    assert_eq!(told.len(), 5, "{told:#?}");
    for (what, line) in [EXPIRED, FOREIGN, BARE, TLS12, PLAIN].iter().zip(&told) {
        assert!(line.contains(&format!("refused: {what}; ")), "{told:#?}");
    }
}

#[tokio::test]
async fn a_used_token_and_a_nodes_certificate_among_operators_are_refused_every_time_and_logged_once() {
    let mut scene = Scene::start().await;
    let mut holder = Agent::new("node-0002");
    let token = scene.site.token("node-0002", &holder.public(), "1h");
    holder.register(&scene.site, &token).await;
    let from = scene.address();
    let thief = client_at(Some(from), &scene.site.ca(), None);
    for _ in 0..TRIES {
        let request = holder.register_body(&token, &csr(&holder.tls));
        let sent = post(&thief, &scene.site, REGISTER_PATH, &request).await;
        assert_eq!(problem(sent).await, (403, "token_used".into()));
    }
    scene
        .turned_away(from, "a token or a signature that does not allow it")
        .await;

    let port = scene.site.daemon.as_ref().unwrap().admin_addr().unwrap().port();
    let admin = format!("https://localhost:{port}/api/v1/admin/nodes");
    let from = scene.address();
    let node = client_at(
        Some(from),
        &scene.site.ca(),
        Some((&scene.agent.certificate, &scene.agent.tls)),
    );
    for _ in 0..TRIES {
        assert_eq!(node.get(&admin).send().await.unwrap().status(), 403);
    }
    scene
        .turned_away(from, "a node's certificate at the admin listener")
        .await;

    let from = scene.address();
    let guesser = client_at(Some(from), &scene.site.ca(), None);
    for guess in 0..TRIES {
        let sent = guesser.get(&admin).bearer_auth(guess).send().await.unwrap();
        assert_eq!(sent.status(), 401);
    }
    scene
        .turned_away(from, "an admin request without a credential that counts")
        .await;
}

#[tokio::test]
async fn compressed_bombs_and_floods_of_headers_are_refused_every_time_and_logged_once() {
    let mut scene = Scene::start().await;
    let identity = (
        scene.agent.certificate.clone(),
        KeyPair::from_pem(&scene.agent.tls.serialize_pem()).unwrap(),
    );
    let ca = scene.site.ca();
    let from = scene.address();
    let client = client_at(Some(from), &ca, Some((&identity.0, &identity.1)));
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let bomb = client
            .post(scene.heartbeat())
            .header("content-encoding", encoding);
        assert_eq!(bomb.body(vec![0; 60_000]).send().await.unwrap().status(), 415);
    }
    scene
        .turned_away(from, "a body that is too large, compressed, or no JSON")
        .await;

    let from = scene.address();
    let client = client_at(Some(from), &ca, Some((&identity.0, &identity.1)));
    for _ in 0..TRIES {
        let mut flood = client.post(scene.heartbeat()).body("{}");
        for n in 0..80 {
            flood = flood.header(format!("x-{n}"), "x");
        }
        assert_eq!(flood.send().await.unwrap().status(), 431);
    }
    scene.turned_away(from, "a head that is too large").await;
}

fn tls12(scene: &Scene) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let ca = scene.site.ca();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let chain = CertificateDer::pem_slice_iter(scene.agent.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(scene.agent.tls.serialize_pem().as_bytes()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap()
}

async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(to).await.unwrap()
}
