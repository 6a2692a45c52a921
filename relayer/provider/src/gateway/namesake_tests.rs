//! Nodes of two clusters have one id, and of the one cluster it is not read from the chain yet which nodes it has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::RETRY_AFTER;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{certificate_path, heartbeat_path, recover_message, recover_path};
use hpc_schema::id::ClusterId;
use hpc_schema::registry::RelayView;
use hpc_schema::task::{result_path, wait_path};
use hpc_schema::time::UnixSeconds;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tower::Service as _;

use super::connection::{Connection, Held, Refused};
use super::{Gateway, Parts, router};
use crate::admission::{Judge, Records};
use crate::clock;
use crate::config::{Config, Live};
use crate::control::Controls;
use crate::home::Home;
use crate::identity::{Anchors, Ca, NodeCsr, PeerIdentity, Seed, TokenKeys, Verifying};
use crate::registry::{Registry, TaskKeys, scene};
use crate::spool::Spool;
use crate::store::Store;
use crate::vectors::Vectors;

/// The agent's key of the vectors, and that of its namesake.
const SEED: [u8; 32] = [1; 32];
const NAMESAKES: [u8; 32] = [2; 32];

fn csr() -> String {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    request.pem().unwrap()
}

/// A gateway that has read the namesake, of another cluster than the node of the vectors, from the chain.
pub(super) struct Scene {
    _dir: tempfile::TempDir,
    pub(super) gateway: Arc<Gateway>,
    pub(super) registry: Arc<Registry>,
    /// Whom the node's certificate names.
    pub(super) peer: PeerIdentity,
    /// The namesake's cluster.
    other: ClusterId,
    /// A heartbeat of the node.
    pub(super) heartbeat: String,
}

/// Status, `Retry-After` and body.
pub(super) type Told = (u16, Option<String>, Value);

impl Scene {
    pub(super) async fn new() -> Self {
        let vectors = Vectors::read();
        let peer = vectors.peer();
        let (case, ..) = vectors.readable().next().unwrap();
        let heartbeat = case["body"].as_str().unwrap().to_owned();
        let other: ClusterId = "hpc-cluster-2".parse().unwrap();
        let registry = Arc::new(Registry::new("chain-1", "contract"));
        let namesake = RelayView {
            node_id: peer.node_id.clone(),
            agent_pubkey: *Seed::from_bytes(&NAMESAKES).unwrap().public(),
            ..scene::view()
        };
        registry.set_node(&other, namesake, 1, UnixSeconds(1)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        Seed::load_or_create(&home.token_key()).unwrap();
        let store = Store::open(&home.store()).await.unwrap();
        let (spool, _) = Spool::start(store.clone(), None, Arc::default());
        let controls = Arc::new(Controls::default());
        let records = Records::new(Arc::clone(&registry), Arc::clone(&controls), spool);
        let (ca, _) = Ca::create(clock::now(), [1; 16]).unwrap();
        let gateway = Arc::new(Gateway::new(Parts {
            config: Config::default(),
            live: Live::new(Config::default()),
            tokens: TokenKeys::new(Verifying::load(&home).unwrap()),
            tasks: TaskKeys::new(home.clone()),
            registry: Arc::clone(&registry),
            store,
            judge: Judge::start(records).unwrap(),
            metrics: Arc::default(),
            wake: Arc::default(),
            controls,
            anchors: Anchors::load(&ca, &home.trusted_cas(), clock::now()).unwrap(),
            ca,
        }));
        Self {
            _dir: dir,
            gateway,
            registry,
            peer,
            other,
            heartbeat,
        }
    }

    /// With the node's certificate, or with none.
    pub(super) fn connection(&self, shows: bool, refused: Option<Refused>) -> Connection {
        Connection {
            from: ([192, 0, 2, 7], 4711).into(),
            peer: shows.then(|| Arc::new(self.peer.clone())),
            refused,
            newer_until: None,
            pace: Arc::default(),
            held: Held::default(),
        }
    }

    pub(super) async fn ask(
        &self,
        connection: &Connection,
        method: Method,
        path: &str,
        body: String,
    ) -> Told {
        let request = Request::builder().method(method).uri(path);
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(connection.clone());
        let mut router = router::router(Arc::clone(&self.gateway));
        let response = router.call(request).await.unwrap();
        let again = response.headers().get(RETRY_AFTER);
        let again = again.map(|v| v.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 65_536).await.unwrap();
        (status, again, serde_json::from_slice(&bytes).unwrap())
    }

    /// What a node asks over mutual TLS, and what it is told of each.
    async fn asks(&self, refused: Option<Refused>) -> Vec<(String, Told)> {
        let node = &self.peer.node_id;
        let task = "0".repeat(32).parse().unwrap();
        let at = "2026-01-30T14:05:00Z";
        let result = json!({
            "task_hash": "0".repeat(64), "outcome": "completed", "result": {}, "started_at": at, "finished_at": at,
            "signature": STANDARD.encode([0; 64]),
        });
        let wait = format!("{}?wait_seconds=1", wait_path(node));
        let renewal = json!({ "csr": csr() });
        let connection = self.connection(true, refused);
        let mut told = Vec::new();
        for (method, path, body) in [
            (Method::POST, heartbeat_path(node), self.heartbeat.clone()),
            (Method::POST, certificate_path(node), renewal.to_string()),
            (Method::GET, wait, String::new()),
            (Method::POST, result_path(node, &task), result.to_string()),
        ] {
            let answer = self.ask(&connection, method, &path, body).await;
            told.push((path, answer));
        }
        told
    }

    /// Asks for a certificate by the agent's key alone.
    async fn recovers(&self, seed: &[u8; 32]) -> Told {
        let node = &self.peer.node_id;
        let (csr, challenge) = (csr(), clock::random::<32>().unwrap());
        self.gateway.challenges.put(challenge, node.clone(), clock::now());
        let message = recover_message(&challenge, NodeCsr::from_pem(&csr).unwrap().der());
        let signature = Seed::from_bytes(seed).unwrap().sign(&message);
        let body = json!({
            "challenge": STANDARD.encode(challenge), "csr": csr, "signature": STANDARD.encode(signature),
        });
        let connection = self.connection(false, None);
        let path = recover_path(node);
        self.ask(&connection, Method::POST, &path, body.to_string()).await
    }
}

fn comes_again(what: &str, (status, again, said): &Told) {
    assert_eq!(
        (*status, again.as_deref(), &said["code"]),
        (503, Some("5"), &json!("unavailable")),
        "{what}: {said}"
    );
}

#[tokio::test]
async fn a_node_is_told_to_come_again_until_its_cluster_is_read_whatever_is_known_of_its_namesake() {
    let scene = Scene::new().await;
    let served = [&scene.other, &scene.peer.cluster_id];
    scene::read(&scene.registry, &served, &[&scene.other]);
    // By the gateway's own CA, and by another one, which puts nothing on record of a node that is not known.
    for refused in [None, Some(Refused::NodeUnknown)] {
        for (path, told) in scene.asks(refused).await {
            comes_again(&path, &told);
        }
    }
    comes_again("recovery", &scene.recovers(&SEED).await);
    // Its namesake has its own.
    let (status, _, said) = scene.recovers(&NAMESAKES).await;
    assert_eq!(status, 200, "{said}");
    let pem = said["certificate"].as_str().unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(PeerIdentity::from_der(&der).unwrap().cluster_id, scene.other);

    // Read, and no node of it.
    scene::read(&scene.registry, &served, &served);
    for (path, (status, _, said)) in scene.asks(None).await {
        let (expected, code) = match &said["response"]["errors"][0]["code"] {
            Value::Null => (404, &said["code"]),
            notice => (200, notice),
        };
        assert_eq!(
            (status, code),
            (expected, &json!("unknown_node")),
            "{path}: {said}"
        );
    }
    let (status, _, said) = scene.recovers(&SEED).await;
    assert_eq!(
        (status, &said["code"]),
        (403, &json!("signature_invalid")),
        "{said}"
    );
}

#[tokio::test]
async fn a_serial_number_above_the_epoch_is_waited_for_a_minute_and_then_told() {
    let scene = Scene::new().await;
    let cluster = &scene.peer.cluster_id;
    let known = RelayView {
        node_id: scene.peer.node_id.clone(),
        epoch: 3,
        ..scene::view()
    };
    scene
        .registry
        .set_node(cluster, known, 1, UnixSeconds(1))
        .unwrap();
    let peer = Arc::new(PeerIdentity {
        epoch: Some(4711),
        ..scene.peer.clone()
    });
    let path = heartbeat_path(&scene.peer.node_id);
    let ask = async |newer_until| {
        let connection = Connection {
            peer: Some(Arc::clone(&peer)),
            newer_until,
            ..scene.connection(true, None)
        };
        scene
            .ask(&connection, Method::POST, &path, scene.heartbeat.clone())
            .await
    };
    let now = Instant::now();
    let (over, later) = (Some(now), Some(now + Duration::from_secs(600)));
    // Until the cluster is read, whoever has issued it.
    for until in [None, over, later] {
        assert_eq!(ask(until).await.0, 503, "{until:?}");
    }
    scene::read(&scene.registry, &[cluster], &[cluster]);
    // Of the gateway's own CA, or on a new connection: another gateway may have taken the registration.
    for until in [None, later] {
        assert_eq!(ask(until).await.0, 503, "{until:?}");
    }
    let (status, _, said) = ask(over).await;
    assert_eq!((status, &said["code"]), (401, &json!("identity_mismatch")));
    let detail = said["detail"].as_str().unwrap();
    assert!(
        detail.contains("serialNumber 4711") && detail.contains("is 3;"),
        "{detail}"
    );
    // From when the certificate was first seen: a connection after another is no further minute.
    let from = scene.connection(false, None).from;
    let seen = UnixSeconds(1_800_000_000);
    for (noted, now, status) in [
        (Ok(None), seen.plus(600), 503),
        (Ok(Some(seen)), seen, 503),
        (Ok(Some(seen)), seen.plus(30), 503),
        (Ok(Some(seen)), seen.plus(60), 401),
        (Ok(Some(seen)), seen.plus(600), 401),
        // The clock was put back.
        (Ok(Some(seen)), seen.minus(600), 503),
    ] {
        let connection = Connection::shows(from, Arc::clone(&peer), noted, now);
        let body = scene.heartbeat.clone();
        let told = scene.ask(&connection, Method::POST, &path, body).await;
        assert_eq!(told.0, status, "{noted:?} at {now:?}: {}", told.2);
    }
}
