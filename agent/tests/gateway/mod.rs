//! A small gateway for tests: real TLS with client certificates, real tokens, and the schema's own verifier, so that
//! what it accepts is what the provider's gateway accepts.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

mod agent;
#[path = "../../../tests/src/calm.rs"]
mod calm;
mod order;
mod pki;
mod routes;
mod simulated;
#[path = "../../src/stand_in.rs"]
mod stand_in;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hpc_schema::code::Code;
use hpc_schema::command::{Acknowledgement, Command};
use hpc_schema::gateway::ConfigUpdates;
use hpc_schema::heartbeat::{Heartbeat, VerifiedHeartbeat};
use hpc_schema::key::AgentKey;
use hpc_schema::node::NodeState;
use hpc_schema::task::KeyRotation;
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::{TokenClaims, encode_token};
use virtengine_node_agent::clock::Clock;
use virtengine_node_agent::key::{NodeKey, SharedSigner};
use virtengine_node_agent::uplink::Stream;

pub use agent::{Running, quick, registered, status, until_caught, until_status};
pub use order::{Signed, order, rotation};
pub use pki::Authority;
pub use simulated::Site;
pub(crate) use stand_in::stand_in;

pub const NODE: &str = "node-hpc1-compute-042";
pub const CLUSTER: &str = "hpc-cluster-1";
pub const CHAIN: &str = "hpc-devnet-1";
pub const CONTRACT: &str = "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d";

/// What the gateway does besides verifying; changed by tests while it runs.
#[derive(Debug)]
pub struct Behaviour {
    /// 202 answers before a registration is done.
    pub pending_answers: u32,
    /// Codes to refuse the next heartbeats with.
    pub refuse: VecDeque<Code>,
    /// Status and code to refuse the next registrations with.
    pub refuse_registration: VecDeque<(u16, Code)>,
    /// Heartbeats with a report are too large.
    pub no_reports: bool,
    /// HTTP errors to answer the next heartbeats with.
    pub http_errors: VecDeque<u16>,
    /// `next_heartbeat_seconds`.
    pub next_heartbeat_seconds: u32,
    /// Whether the chain takes what is accepted at once.
    pub settles: bool,
    /// Added to the gateway's clock, in seconds.
    pub clock_offset: i64,
    /// Closes the connection after each answer.
    pub close: bool,
    /// Life of certificates that it issues.
    pub certificate_life: Duration,
    /// Sent with every answer.
    pub config_updates: Option<ConfigUpdates>,
    /// Sent with every answer.
    pub node_state: NodeState,
    /// What a pending registration waits for.
    pub approval: bool,
    /// Answers nothing at all while set.
    pub hang: bool,
    /// Hands out certificates of another CA.
    pub issue_by_another: bool,
    /// Whether it names its own CA, and another.
    pub names: (bool, bool),
    /// Is another CA's itself.
    pub shows_another: bool,
    /// Sends no CA along with its certificate.
    pub keeps_ca: bool,
    /// Of what it has seen, keeps the last heartbeat only.
    pub forgets: bool,
    /// Told with every answer, until acknowledged.
    pub commands: Vec<Command>,
    /// Told with every answer.
    pub task_keys: Vec<KeyRotation>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            pending_answers: 0,
            refuse: VecDeque::new(),
            refuse_registration: VecDeque::new(),
            no_reports: false,
            http_errors: VecDeque::new(),
            next_heartbeat_seconds: 30,
            settles: true,
            clock_offset: 0,
            close: false,
            certificate_life: Duration::from_secs(24 * 3600),
            config_updates: None,
            node_state: NodeState::Active,
            approval: false,
            hang: false,
            issue_by_another: false,
            names: (true, false),
            shows_another: false,
            keeps_ca: false,
            forgets: false,
            commands: Vec::new(),
            task_keys: Vec::new(),
        }
    }
}

/// What it has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub registrations: Vec<serde_json::Value>,
    pub heartbeats: Vec<VerifiedHeartbeat>,
    /// Whether each of them carried its section.
    pub with_section: Vec<bool>,
    pub arrived: Vec<Instant>,
    /// When each heartbeat came, accepted or not.
    pub asked: Vec<Instant>,
    /// Sequence numbers of everything that was signed well, accepted or not.
    pub sequences: Vec<u32>,
    pub refusals: Vec<String>,
    pub acknowledgements: Vec<Acknowledgement>,
    pub renewals: u32,
    pub recoveries: u32,
    /// Certificates of a registration that had been replaced.
    pub replaced: u32,
    /// The key of each accepted heartbeat.
    pub keys: Vec<AgentKey>,
    pub connections: u32,
}

pub struct Shared {
    pub authority: Authority,
    pub another: Authority,
    pub token_key: NodeKey,
    pub behaviour: Mutex<Behaviour>,
    pub seen: Mutex<Seen>,
    pub registered: Mutex<Option<(AgentKey, String)>>,
    pub challenge: Mutex<Option<[u8; 32]>>,
    pub epoch: AtomicU64,
    /// Its wall clock.
    pub clock: Clock,
}

/// A port on which nobody listens yet, and that the kernel gives to nobody else meanwhile.
pub struct Port(tokio::net::TcpSocket);

impl Port {
    pub fn free() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // Whoever listens on it then asks for the same.
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn number(&self) -> u16 {
        self.address().port()
    }
}

/// A running gateway.
pub struct Gateway {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    /// It answers everything with 503.
    pub in_trouble: Arc<AtomicBool>,
    /// Seconds by which the time that it tells with every answer is behind.
    pub behind: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gateway {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), Arc::new(Shared::new())).await
    }

    /// Starts again at a known address with what another one knew.
    pub async fn start_at(address: SocketAddr, shared: Arc<Shared>) -> Self {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, incoming) = tokio::sync::mpsc::channel(64);
        let (in_trouble, behind) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let own = (Arc::clone(&in_trouble), Arc::clone(&behind));
        let serving = routes::serve(incoming, Arc::clone(&shared), own);
        let task = tokio::spawn(async move {
            let accept = async {
                while let Ok((tcp, _)) = listener.accept().await {
                    let stream: Box<dyn Stream> = Box::new(tcp);
                    sender.send(stream).await.ok();
                }
            };
            tokio::join!(accept, serving);
        });
        Self {
            address,
            shared,
            in_trouble,
            behind,
            task,
        }
    }

    /// A gateway in this process alone, for simulated time: it is reached by the [`Dial`] that comes with it.
    pub fn start_simulated(shared: Arc<Shared>) -> (Self, tokio::sync::mpsc::Sender<Box<dyn Stream>>) {
        let (sender, incoming) = tokio::sync::mpsc::channel(64);
        let (in_trouble, behind) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let own = (Arc::clone(&in_trouble), Arc::clone(&behind));
        let serving = routes::serve(incoming, Arc::clone(&shared), own);
        let task = tokio::spawn(serving);
        let gateway = Self {
            address: "127.0.0.1:1".parse().unwrap(),
            shared,
            in_trouble,
            behind,
            task,
        };
        (gateway, sender)
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.shared.behaviour.lock().unwrap()
    }

    /// The newest heartbeat.
    pub fn last(&self) -> Heartbeat {
        Heartbeat::clone(&self.seen().heartbeats.last().unwrap().heartbeat)
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen.lock().unwrap()
    }

    pub fn token(&self, key: &AgentKey) -> String {
        self.shared.token(key, "token-1")
    }

    /// Waits until `done` holds of what was seen.
    pub async fn until(&self, what: &str, done: impl Fn(&Seen) -> bool) {
        let start = Instant::now();
        while !done(&self.seen()) {
            let refusals = self.seen().refusals.clone();
            assert!(
                // A program that failed is asked again after up to 45 s, with a round of 30 s, for a heartbeat of 10 s.
                start.elapsed() < Duration::from_secs(120),
                "waited in vain for {what}; refusals: {refusals:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_heartbeats(&self, n: usize) {
        self.until(&format!("{n} heartbeats"), |s| s.heartbeats.len() >= n)
            .await;
    }
}

impl Shared {
    pub fn new() -> Self {
        Self::at(Clock::system())
    }

    pub fn at(clock: Clock) -> Self {
        Self {
            clock,
            authority: Authority::new(),
            another: Authority::new(),
            token_key: NodeKey::from_seed([9; 32]).unwrap(),
            behaviour: Mutex::default(),
            seen: Mutex::default(),
            registered: Mutex::new(None),
            challenge: Mutex::new(None),
            epoch: AtomicU64::new(7),
        }
    }

    pub fn token(&self, key: &AgentKey, jti: &str) -> String {
        let now = now();
        let claims = TokenClaims {
            iss: "test-gateway".into(),
            sub: NODE.parse().unwrap(),
            cluster_id: CLUSTER.parse().unwrap(),
            provider_address: None,
            pubkey: *key,
            jti: jti.into(),
            iat: now,
            exp: now.plus(3600),
            ca_sha256: self.authority.fingerprint(),
            chain_id: CHAIN.into(),
            contract: CONTRACT.into(),
            task_key: Some(task_key().public()),
            endpoint: None,
        };
        encode_token(&claims, |m| {
            Ok::<_, std::convert::Infallible>(self.token_key.sign(m))
        })
        .unwrap()
    }
}

/// The cluster's task key.
pub fn task_key() -> NodeKey {
    NodeKey::from_seed([8; 32]).unwrap()
}

pub fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// A node's folder with key and configuration.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub key: SharedSigner,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = virtengine_node_agent::key::generate(&dir.path().join("keys"), false).unwrap();
        let key = virtengine_node_agent::key::load(&made.key_path).unwrap();
        Self { dir, key }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// From here on it is configured on a host without troubles of its own.
    pub fn calm(&self) {
        let line = calm::host(&self.path("calm")).unwrap();
        std::fs::write(self.path("calm/roots"), line).unwrap();
    }

    /// Writes the configuration file. Whatever Slurm runs on the machine is not this node's.
    pub fn configure(&self, endpoints: &[String], token: Option<&str>) -> PathBuf {
        let d = self.dir.path().display();
        let token = token.map_or(String::new(), |t| format!("  registration_token: {t}\n"));
        let text = format!(
            "provider_daemon:\n  endpoints: [{}]\n  request_timeout: 5s\n  tls:\n    ca_cert: {d}/tls/ca.crt\n    \
             client_cert: {d}/tls/client.crt\n    client_key: {d}/tls/client.key\nagent:\n  key_path: {d}/keys/agent.key\n  \
             state_dir: {d}/state\n{token}slurm: {{enabled: false}}\napi: {{listen: 'off'}}\nsampling:\n  base_interval: 10s\n  utilization_interval: 5s\n",
            endpoints.join(", ")
        );
        let roots = std::fs::read_to_string(self.path("calm/roots")).unwrap_or_default();
        let text = text.replace("agent:\n", &format!("agent:\n{roots}"));
        let path = self.path("config.yaml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    pub fn config(&self, endpoints: &[String], token: Option<&str>) -> virtengine_node_agent::config::Config {
        let path = self.configure(endpoints, token);
        virtengine_node_agent::config::load(&path, &virtengine_node_agent::config::Overrides::default())
            .unwrap()
    }
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
