//! A site: the embedded chain with the contract and a cluster, the daemon's directory, the daemon.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hpc_chain::gas::Adjustment;
use hpc_chain::keys::LocalKey;
use hpc_chain::msg;
use hpc_chain::query::Chain;
use hpc_chain::registry::{RegistryClient, events, response_data};
use hpc_chain::rpc::{Client as Rpc, ClientOptions, Endpoints};
use hpc_chain::send::{Gas, Pay, SendOptions, Sent, send_and_wait};
use hpc_chain::tx::{Fee, SignerData, Unsigned, sign};
use hpc_devnet::{BlockMode, Config as DevnetConfig, Devnet, Genesis, GenesisAccount, Handle};
use hpc_schema::id::ClusterId;
use hpc_schema::registry::{Event, ExecuteMsg, InstantiateMsg, NodeView, ParamsUpdate};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::sync::oneshot;
use tokio::time::timeout;
use virtengine_provider::clock;
use virtengine_provider::config::Config;
use virtengine_provider::daemon::Daemon;
use virtengine_provider::home::Home;
use virtengine_provider::store::Store;

pub(crate) const CHAIN_ID: &str = "hpc-test-1";
pub(crate) const CLUSTER: &str = "hpc-cluster-1";
const BIN: &str = env!("CARGO_BIN_EXE_virtengine-provider");

/// Where `HPC_TEST_STORE=postgres` has the store: a database of its own on the server that `HPC_TEST_POSTGRES` names.
async fn database() -> Option<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if std::env::var("HPC_TEST_STORE").as_deref() != Ok("postgres") {
        return None;
    }
    let server = std::env::var("HPC_TEST_POSTGRES").expect("HPC_TEST_POSTGRES: the URL of a server");
    let name = format!(
        "site_{}_{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let mut conn = PgConnection::connect(&server).await.unwrap();
    let create = format!("CREATE DATABASE {name}");
    conn.execute(AssertSqlSafe(create)).await.unwrap();
    conn.close().await.unwrap();
    Some(server.replacen("/postgres", &format!("/{name}"), 1))
}

#[path = "../../../../tests/src/deadline.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other suites")]
pub(crate) mod deadline;

pub(crate) struct Site {
    pub(crate) devnet: Handle,
    pub(crate) client: RegistryClient,
    pub(crate) contract: String,
    pub(crate) owner: LocalKey,
    dir: tempfile::TempDir,
    database: Option<String>,
    pub(crate) daemon: Option<Daemon>,
    thread: Option<oneshot::Sender<()>>,
    /// Port of a daemon that is a process of its own.
    pub(crate) elsewhere: Option<u16>,
    // The last: letting the others go may hang too.
    _deadline: deadline::Deadline,
}

pub(crate) fn cluster() -> ClusterId {
    CLUSTER.parse().unwrap()
}

/// A daemon on a thread of its own, which says what it says where this test listens: a test that waits for the program
/// holds up nothing that the daemon has begun, such as a transaction for which the program waits.
/// The thread ends when what comes with the daemon is dropped.
async fn beside(home: Home, config: Config) -> (Daemon, oneshot::Sender<()>) {
    let (give, started) = oneshot::channel();
    let (thread, needed) = oneshot::channel();
    let here = tracing::dispatcher::get_default(Clone::clone);
    std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || {
            let _here = tracing::dispatcher::set_default(&here);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let daemon = Daemon::start(home, config).await.unwrap();
                give.send(daemon).ok();
                needed.await.ok();
            });
        })
        .unwrap();
    let daemon = timeout(Duration::from_secs(60), started).await;
    let daemon = daemon.expect("the daemon is up within a minute");
    (daemon.expect("the daemon starts"), thread)
}

/// Runs the program; gives standard output, standard error and the exit code.
pub(crate) fn run(home: &Path, env: &[(String, String)], args: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(BIN);
    command
        .args(args)
        .arg("--home")
        .arg(home)
        .envs(env.iter().cloned());
    let out = deadline::output(&mut command, Duration::from_secs(120)).unwrap();
    (
        String::from_utf8(out.stdout).unwrap(),
        String::from_utf8(out.stderr).unwrap(),
        out.status.code().unwrap_or(-1),
    )
}

/// A registration token, made by the program.
pub(crate) fn token(home: &Path, env: &[(String, String)], node: &str, key: &str, expires: &str) -> String {
    let args = [
        "node-token",
        "create",
        "--cluster-id",
        CLUSTER,
        "--node-id",
        node,
        "--pubkey",
        key,
        "--expires",
        expires,
    ];
    let (out, err, code) = run(home, env, &args);
    assert_eq!(code, 0, "{err}");
    out.trim().to_owned()
}

impl Site {
    /// Everything but the daemon; the cluster is active.
    pub(crate) async fn prepare() -> Self {
        Self::prepare_with(|_| {}, "1000000000000stake").await
    }

    /// On a chain with these changes, with so much on the relayer's account.
    pub(crate) async fn prepare_with(change: impl FnOnce(&mut DevnetConfig), relayer_has: &str) -> Self {
        let deadline = deadline::Deadline::of_test();
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("provider");
        let database = database().await;
        let of_store = database
            .iter()
            .map(|url| ("VIRTENGINE_PROVIDER__STORE__URL".to_owned(), url.clone()));
        let (_, err, code) = run(&home, &of_store.collect::<Vec<_>>(), &["init"]);
        assert_eq!(code, 0, "{err}");
        let address = |name: &str| run(&home, &[], &["keys", "address", name]).0.trim().to_owned();
        let (operator, relayer) = (address("operator"), address("relayer"));
        let owner = LocalKey::from_secret(&[7; 32]).unwrap();
        let owner_address = owner.address("wasm").unwrap();
        let rich = |a: &str| GenesisAccount::new(a, "1000000000000stake");
        let genesis = Genesis::new(
            CHAIN_ID,
            vec![
                rich(&owner_address),
                rich(&operator),
                GenesisAccount::new(&relayer, relayer_has),
            ],
        );
        let mut config = DevnetConfig::ephemeral(genesis);
        config.blocks = BlockMode::Every(Duration::from_millis(100));
        change(&mut config);
        let devnet = Devnet::start(config).unwrap();
        let endpoints = Endpoints::new(&[devnet.rpc_url()], ClientOptions::default()).unwrap();
        let chain = Chain::new(endpoints);
        let instantiate = InstantiateMsg {
            admin: None,
            params: ParamsUpdate::default(),
        };
        let message = msg::instantiate(&owner_address, None, 1, "hpc", &instantiate, &[]).unwrap();
        let sent = signs(&chain, &owner, message).await;
        let contract = String::from_utf8(response_data(&sent.tx.result, 0).unwrap().unwrap()).unwrap();
        let client = RegistryClient::new(chain, contract.clone());
        let site = Self {
            devnet,
            client,
            contract,
            owner,
            dir,
            database,
            daemon: None,
            thread: None,
            elsewhere: None,
            _deadline: deadline,
        };
        site.owner_sends(
            &serde_json::from_value(serde_json::json!({
                "create_cluster": { "cluster_id": CLUSTER, "operators": [operator] }
            }))
            .unwrap(),
        )
        .await;
        site.owner_sends(&ExecuteMsg::ActivateCluster {
            cluster_id: cluster(),
        })
        .await;
        site
    }

    /// With the daemon in this process.
    pub(crate) async fn start() -> Self {
        let mut site = Self::prepare().await;
        site.start_daemon().await;
        site.has_read().await;
        site
    }

    /// Until it has read the chain once, a node that it does not know is told to come again.
    pub(crate) async fn has_read(&self) {
        eventually("the chain was read", async || {
            let (_, said) = self.ops("/readyz").await;
            !said.contains("\"starting\"") && !said.contains("\"not_synced\"")
        })
        .await;
    }

    pub(crate) async fn start_daemon(&mut self) {
        let config = self.config();
        self.start_with(config).await;
    }

    pub(crate) async fn start_with(&mut self, config: Config) {
        let (daemon, thread) = beside(Home::new(self.home()), config).await;
        (self.daemon, self.thread) = (Some(daemon), Some(thread));
    }

    pub(crate) async fn stop_daemon(&mut self) {
        self.daemon.take().unwrap().stop().await;
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("provider")
    }

    /// Overrides that make the daemon quick and put it on free ports.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let rpc = format!("[{}]", self.devnet.rpc_url());
        [
            ("CHAIN__ID", CHAIN_ID),
            ("CHAIN__CONTRACT", &self.contract),
            ("CHAIN__RPC", &rpc),
            ("CHAIN__GAS_PRICE", "0.01stake"),
            ("CHAIN__POLL", "50ms"),
            ("CHAIN__SYNC", "200ms"),
            ("GATEWAY__LISTEN", "127.0.0.1:0"),
            ("GATEWAY__REQUESTS_PER_MINUTE", "6000"),
            ("OPS__LISTEN", "127.0.0.1:0"),
            ("ADMIN__LISTEN", "127.0.0.1:0"),
            ("BATCH__SUBMIT_INTERVAL", "300ms"),
            ("STOP__SETTLEMENT", "5s"),
        ]
        .into_iter()
        .chain(self.database.as_deref().map(|url| ("STORE__URL", url)))
        .map(|(k, v)| (format!("VIRTENGINE_PROVIDER__{k}"), v.to_owned()))
        .collect()
    }

    /// The daemon's store.
    pub(crate) async fn store(&self) -> Store {
        Store::of(&Home::new(self.home()), &self.config().store)
            .await
            .unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        Config::load(&self.home().join("config.yaml"), self.env().into_iter()).unwrap()
    }

    pub(crate) fn gateway(&self) -> String {
        let here = || self.daemon.as_ref().unwrap().gateway_addr().port();
        let port = self.elsewhere.unwrap_or_else(here);
        format!("https://localhost:{port}")
    }

    pub(crate) fn ca(&self) -> String {
        std::fs::read_to_string(self.home().join("ca/ca.crt")).unwrap()
    }

    pub(crate) async fn owner_sends(&self, message: &ExecuteMsg) -> Sent {
        let sender = self.owner.address("wasm").unwrap();
        self.owner_signs(self.client.execute(&sender, message, &[]).unwrap())
            .await
    }

    pub(crate) async fn owner_signs(&self, message: msg::Any) -> Sent {
        signs(self.client.chain(), &self.owner, message).await
    }

    /// The program, on this site's directory.
    pub(crate) fn run(&self, args: &[&str]) -> (String, String, i32) {
        run(&self.home(), &self.env(), args)
    }

    pub(crate) fn token(&self, node: &str, key: &str, expires: &str) -> String {
        token(&self.home(), &self.env(), node, key, expires)
    }

    pub(crate) async fn node(&self, node: &str) -> NodeView {
        self.client
            .node(Some(cluster()), node.parse().unwrap())
            .await
            .unwrap()
            .value
            .node
    }

    pub(crate) async fn wait_sequence(&self, node: &str, sequence: u32) {
        eventually(&format!("sequence {sequence} of {node} on chain"), async || {
            self.node(node).await.sequence >= sequence
        })
        .await;
    }

    /// Everything that ever happened on the contract: how many reports it accepted, in how many batches.
    pub(crate) async fn accepted_on_chain(&self) -> (u64, u64) {
        let rpc: &Rpc = self.client.chain().endpoints().best().unwrap();
        // Always there, other than `wasm`, which needs attributes.
        let query = format!("execute._contract_address='{}'", self.contract);
        let (mut reports, mut batches, mut page) = (0, 0, 1);
        let mut seen = BTreeSet::new();
        loop {
            let found = rpc.tx_search(&query, page, 100).await.unwrap();
            for tx in &found.txs {
                assert!(seen.insert(tx.hash), "a transaction is in the chain twice");
                for event in events(&tx.result, &self.contract).unwrap() {
                    if let Event::Batch { accepted, refused } = event {
                        reports += u64::from(accepted);
                        batches += 1;
                        assert_eq!(refused, 0, "nothing was relayed a second time");
                    }
                }
            }
            if u64::from(page) * 100 >= found.total {
                return (reports, batches);
            }
            page += 1;
        }
    }

    pub(crate) async fn ops(&self, path: &str) -> (u16, String) {
        let addr = self.daemon.as_ref().unwrap().ops_addr();
        let response = reqwest::get(format!("http://{addr}{path}")).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// How many connections have gone for others'.
    pub(crate) async fn evicted(&self) -> u64 {
        self.metric("virtengine_provider_connections_evicted_total").await
    }

    /// A metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = self.ops("/metrics").await.1;
        let line = metrics
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    }
}

/// One message in a transaction of its own. On a chain whose time is long ago, which nobody sends anything to who looks at
/// it, without looking.
async fn signs(chain: &Chain, key: &LocalKey, message: msg::Any) -> Sent {
    let rpc = chain.endpoints().best().unwrap();
    let behind = clock::now_ms().saturating_sub(rpc.status().await.unwrap().block_time_ms);
    if behind < 1_000_000 {
        return send_and_wait(chain, key, &options(), vec![message])
            .await
            .unwrap();
    }
    let account = chain.account(&key.address("wasm").unwrap()).await.unwrap();
    let account = account.value.unwrap();
    let fee = Fee {
        amount: vec![],
        gas_limit: 10_000_000,
        granter: None,
    };
    let unsigned = Unsigned {
        messages: vec![message],
        memo: String::new(),
        timeout_height: 1_000_000.try_into().unwrap(),
        fee: fee.clone(),
    };
    let signer = SignerData {
        chain_id: CHAIN_ID,
        account_number: account.number,
        sequence: account.sequence,
    };
    let signed = sign(key, signer, &unsigned).unwrap();
    let offered = rpc.broadcast_tx_sync(&signed.bytes).await.unwrap();
    assert_eq!(offered.code, 0, "{}", offered.log);
    let mut found = None;
    eventually("a transaction", async || {
        found = rpc.tx(signed.hash).await.unwrap();
        found.is_some()
    })
    .await;
    let tx = found.unwrap();
    assert_eq!(tx.result.code, 0, "{}", tx.result.log);
    Sent { tx, fee }
}

pub(crate) fn options() -> SendOptions {
    SendOptions {
        chain_id: CHAIN_ID.to_owned(),
        prefix: "wasm".to_owned(),
        gas: Gas::Auto(Adjustment::default()),
        pay: Pay::Price("0.1stake".parse().unwrap()),
        memo: String::new(),
        deadline: Duration::from_secs(60),
    }
}

/// Waits until it is so, at most a minute.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !so().await {
        assert!(Instant::now() < until, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
