//! Endpoints behind TLS: requests and the websocket alike, by a CA of one's own or the system's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use virtengine_provider::config::Config;

use crate::agent::Agent;
use crate::site::{Site, eventually};

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, key()).unwrap()
}

/// A TLS front for `localhost` before the RPC port of a chain.
struct Front {
    port: u16,
    upgrades: Arc<AtomicUsize>,
    cut: watch::Sender<()>,
    task: AbortHandle,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    async fn start(site: &Site, ca: &CertifiedIssuer<'static, KeyPair>) -> Self {
        let own = key();
        let leaf = CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .signed_by(&own, ca)
            .unwrap();
        let own = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], own)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let to = site.devnet.rpc_url().replace("http://", "");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (upgrades, cut) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(()));
        let (seen, cuts) = (Arc::clone(&upgrades), cut.subscribe());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                let (seen, mut cuts) = (Arc::clone(&seen), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut tls) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut head = [0; 4096];
                    let n = tls.read(&mut head).await.unwrap_or(0);
                    if head.starts_with(b"GET /websocket") {
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                    let mut node = TcpStream::connect(to).await.unwrap();
                    node.write_all(&head[..n]).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut tls, &mut node) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self {
            port,
            upgrades,
            cut,
            task: task.abort_handle(),
        }
    }

    fn url(&self, name: &str) -> String {
        format!("https://{name}:{}", self.port)
    }

    fn upgrades(&self) -> usize {
        self.upgrades.load(Ordering::SeqCst)
    }
}

fn written(dir: &Path, ca: &CertifiedIssuer<'static, KeyPair>) -> PathBuf {
    let path = dir.join("rpc-ca.crt");
    std::fs::write(&path, ca.pem()).unwrap();
    path
}

fn over(site: &Site, url: String, ca_file: Option<PathBuf>) -> Config {
    let mut config = site.config();
    config.chain.rpc = vec![url];
    config.chain.ca_file = ca_file;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_the_websocket_go_over_tls_by_the_ca_of_a_file_and_come_back_after_a_cut() {
    let mut site = Site::prepare().await;
    let (dir, ca) = (tempfile::tempdir().unwrap(), authority("one"));
    let front = Front::start(&site, &ca).await;
    let config = over(&site, front.url("localhost"), Some(written(dir.path(), &ca)));
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence("node-0001", 1).await;
    eventually("a websocket over TLS", async || front.upgrades() == 1).await;
    front.cut.send(()).unwrap();
    assert!(agent.beat(&client, &site, 2).await.accepted);
    site.wait_sequence("node-0001", 2).await;
    eventually("another websocket", async || front.upgrades() == 2).await;
    // Each event once, those of the cut included.
    eventually("the events of both reports", async || {
        let (home, env) = (site.home(), site.env());
        let words = ["node", "show", "node-0001", "-o", "json"];
        let shown = tokio::task::spawn_blocking(move || crate::site::run(&home, &env, &words).0);
        let shown: serde_json::Value = serde_json::from_str(&shown.await.unwrap()).unwrap();
        shown["reports"]
            .as_array()
            .is_some_and(|all| all.iter().filter(|r| r["ended"] == "on_chain").count() == 2)
    })
    .await;
    site.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_of_another_ca_or_name_is_told_and_heartbeats_wait() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    site.stop_daemon().await;
    let (dir, ca, other) = (tempfile::tempdir().unwrap(), authority("one"), authority("other"));
    let front = Front::start(&site, &ca).await;
    let (url, named) = (front.url("localhost"), front.url("127.0.0.1"));
    let right = written(dir.path(), &ca);
    let aside = tempfile::tempdir().unwrap();
    let wrong = written(aside.path(), &other);
    for (url, ca_file, word) in [
        (&url, Some(wrong), "UnknownIssuer"),
        (&url, None, "UnknownIssuer"),
        (&named, Some(right), "not valid for name"),
    ] {
        let config = over(&site, url.clone(), ca_file);
        site.start_with(config).await;
        eventually(&format!("readyz with {word}"), async || {
            let told = site.ops("/readyz").await.1;
            told.contains("chain_unreachable") && told.contains(word)
        })
        .await;
        assert_eq!(front.upgrades(), 0, "nothing goes over it");
        // The node is on record: its heartbeats are taken all the same.
        assert!(agent.beat(&client, &site, next()).await.accepted);
        site.stop_daemon().await;
    }
    let mut env = site.env();
    env.push(("VIRTENGINE_PROVIDER__CHAIN__CA_FILE".into(), "/nowhere".into()));
    let (_, said, code) = crate::site::run(&site.home(), &env, &["config", "check"]);
    assert!(code == 78 && said.contains("chain.ca_file: /nowhere"), "{said}");
}

fn next() -> u32 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    u32::try_from(NEXT.fetch_add(1, Ordering::SeqCst)).unwrap()
}

#[cfg(feature = "fault-injection")]
#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_the_systems_cas_count() {
    let mut site = Site::prepare().await;
    let (dir, ca) = (tempfile::tempdir().unwrap(), authority("one"));
    let front = Front::start(&site, &ca).await;
    // Where OpenSSL and rustls alike look for the system's.
    let system = written(dir.path(), &ca).display().to_string();
    let rpc = format!("[{}]", front.url("localhost"));
    let env = [
        ("SSL_CERT_FILE", system.as_str()),
        ("VIRTENGINE_PROVIDER__CHAIN__RPC", &rpc),
    ];
    let process = crate::process::Process::start_with(&site, None, &env);
    site.elsewhere = Some(process.port);
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(crate::process::beat(&agent, &client, process.port, 1).await);
    site.wait_sequence("node-0001", 1).await;
    eventually("a websocket over TLS", async || front.upgrades() == 1).await;
}
