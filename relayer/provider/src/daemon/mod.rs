//! The daemon: everything is started here, and stopped in order.

mod admin;
mod alive;
mod anchor;
mod check;
mod error;
mod files;
mod lead;
mod open;
mod passphrase;
mod probes;
mod reload;
mod signers;
mod stop;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;

use hpc_chain::rpc::Follower;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use alive::Alive;
pub use error::StartError;
use lead::Duties;
pub(crate) use open::{check_keys, client, load_ca};
pub use open::{load_key, prefix_of};
pub(crate) use passphrase::passphrase;
use reload::Reload;
pub use reload::Reread;

use crate::admin::http::Api;
use crate::admission::{Judge, Verifiers};
use crate::config::{Config, Live};
use crate::control::Controls;
use crate::events;
use crate::gateway::{self, Gateway, Parts, Tls};
use crate::home::Home;
use crate::identity::Anchors;
use crate::ops::{self, Health, Metrics};
use crate::registry::{self, Registry, TaskKeys};
use crate::settle::{self, Claims, DriverError, Wake};
use crate::spool::Spool;
use crate::store::Store;
use crate::{alert, clock, home, openapi};

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    gateway_addr: SocketAddr,
    ops_addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    live: Live,
    store: Store,
    stop_intake: watch::Sender<bool>,
    stop_settlement: watch::Sender<bool>,
    stop_rest: watch::Sender<bool>,
    intake: JoinHandle<()>,
    spool: JoinHandle<()>,
    driver: JoinHandle<Result<(), DriverError>>,
    checking: JoinHandle<StartError>,
    rest: Vec<JoinHandle<()>>,
    reload: Reload,
    // Held for the daemon's life: two processes on one key would fight over its sequence.
    _lock: std::fs::File,
}

impl Daemon {
    /// Starts everything. An unreachable chain is no reason not to; a wrong one is.
    ///
    /// # Errors
    /// [`StartError`], with the exit code that fits.
    pub async fn start(home: Home, config: Config) -> Result<Self, StartError> {
        Box::pin(Self::start_rereading(home, config, None)).await
    }

    /// The same, with a way to read the configuration again, for [`Self::reload`].
    ///
    /// # Errors
    /// [`StartError`], with the exit code that fits.
    pub async fn start_rereading(
        home: Home,
        config: Config,
        reread: Option<Reread>,
    ) -> Result<Self, StartError> {
        config.require_chain()?;
        let live = Live::new(config.clone());
        let lock = open::lock(&home).await?;
        files::raise_limit(&config);
        let keys = open::keys(&home, &config)?;
        let store = Store::of(&home, &config.store).await?;
        let registry = Arc::new(Registry::new(&config.chain.id, &config.chain.contract));
        let client = open::client(&config)?;
        let (health, metrics) = (Arc::new(Health::default()), Arc::new(Metrics::default()));
        let signing = signers::all(&keys.signers);
        signers::check(&signing, &health).await?;
        let asked = check::chain(&client, &config, &health).await?;
        check::fee_grants(&client, &keys.signers, &health).await?;
        store.bind(&config.chain.id, &config.chain.contract).await?;
        registry::load(&store, &registry, clock::now()).await?;
        let controls = Arc::new(Controls::default());
        controls.refresh(&store).await?;

        let certificate = Arc::new(open::server_certificate(&home, &config, &keys.ca, clock::now())?);
        let anchors = Anchors::load(&keys.ca, &home.trusted_cas(), clock::now())?;
        let tls = Arc::new(Tls::new(gateway::server_config(
            &anchors,
            Arc::clone(&certificate),
        )?));
        let bind = |addr: SocketAddr| async move {
            TcpListener::bind(addr)
                .await
                .map_err(|source| StartError::Bind { addr, source })
        };
        let (listener, ops_listener) = (bind(config.gateway.listen).await?, bind(config.ops.listen).await?);
        let admin = admin::bind(&live).await?;
        let local = |l: &TcpListener| l.local_addr().map_err(StartError::Io);
        let (gateway_addr, ops_addr) = (local(&listener)?, local(&ops_listener)?);

        let (stop_intake, intake_stops) = watch::channel(false);
        let (stop_settlement, settlement_stops) = watch::channel(false);
        let (stop_rest, rest_stops) = watch::channel(false);
        let wake = Arc::new(Wake::default());
        let (spool, spool_task) = Spool::start(store.clone());
        let gateway = Arc::new(Gateway::new(Parts {
            config: config.clone(),
            live: live.clone(),
            ca: keys.ca,
            tokens: keys.tokens,
            tasks: TaskKeys::new(home.clone()),
            registry: Arc::clone(&registry),
            store: store.clone(),
            judge: Judge::new(
                Arc::clone(&registry),
                Arc::clone(&controls),
                spool,
                Verifiers::start()?,
            )
            .keeping(live.clone()),
            metrics: Arc::clone(&metrics),
            wake: Arc::clone(&wake),
            controls: Arc::clone(&controls),
            anchors,
        }));
        let reload = Reload {
            home: home.clone(),
            gateway: Arc::downgrade(&gateway),
            tls: Arc::clone(&tls),
            certificate: Arc::clone(&certificate),
            health: Arc::clone(&health),
            store: store.clone(),
            live: live.clone(),
            reread,
            endpoints: client.chain().endpoints().clone(),
        };
        let endpoints = client.chain().endpoints();
        let follower = Follower::start(endpoints, &config.chain.id, config.chain.poll.duration());
        let settling = settle::Shared {
            config: config.clone(),
            live: live.clone(),
            price: keys.price,
            ceiling: keys.ceiling,
            client: client.clone(),
            store: store.clone(),
            registry: Arc::clone(&registry),
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            wake,
            claims: Arc::new(Claims::default()),
            seen: follower.seen(),
        };
        let watching = settle::watch_endpoints(
            follower.seen(),
            endpoints.clone(),
            Arc::clone(&registry),
            Arc::clone(&health),
            Arc::clone(&metrics),
            rest_stops.clone(),
        );
        let following = events::Follow {
            client: client.clone(),
            store: store.clone(),
            registry: Arc::clone(&registry),
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            clusters: config.chain.clusters.clone(),
            seen: follower.seen(),
        };
        let alerting = alert::Parts {
            config: config.alerts.clone(),
            home: home.clone(),
            store: store.clone(),
            registry: Arc::clone(&registry),
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            instance: store.is_shared().then(|| instance(ops_addr)),
        };
        let checking = tokio::spawn(check::chain_later(asked, client.clone(), config.clone()));
        let with_tls = config.admin.tls;
        let shared = tasks::Shared {
            live: live.clone(),
            home,
            client,
            store: store.clone(),
            registry,
            health,
            metrics,
            controls,
        };
        let mut stop_ops = rest_stops.clone();
        let ops_task = ops::serve(
            ops_listener,
            Arc::clone(&shared.health),
            Arc::clone(&shared.metrics),
            async move { drop(stop_ops.wait_for(|s| *s).await) },
        );
        let admin_addr = admin.as_ref().map(|a| a.addr);
        let api = Api::new(
            shared.home.clone(),
            live.clone(),
            store.clone(),
            Arc::clone(&shared.health),
            openapi::document(),
        );
        let admin = admin.map(|a| a.serve(api, Arc::clone(&tls), rest_stops.clone(), with_tls));
        let duties = Duties {
            settling,
            alerting,
            following,
            shared: shared.clone(),
        };
        let mut rest = vec![
            tokio::spawn(ops_task),
            tokio::spawn(watching),
            tokio::spawn(signers::watch(
                signing,
                Arc::clone(&shared.health),
                rest_stops.clone(),
            )),
            tokio::spawn(tasks::sync(shared.clone(), rest_stops.clone())),
            tokio::spawn(tasks::control(
                shared.clone(),
                reload.clone(),
                Arc::downgrade(&gateway),
                rest_stops.clone(),
            )),
            tokio::spawn(probes::probes(
                shared.clone(),
                Arc::downgrade(&gateway),
                rest_stops.clone(),
            )),
            tokio::spawn(tasks::keep(
                shared,
                Arc::downgrade(&gateway),
                certificate,
                rest_stops.clone(),
            )),
        ];
        rest.extend(admin);
        let stops = (settlement_stops, rest_stops);
        let driver = Box::pin(duties.begin(keys.signers, follower, stops, &mut rest)).await?;
        let intake = tokio::spawn(gateway::serve(listener, tls, gateway, intake_stops));
        tracing::info!(gateway = %gateway_addr, ops = %ops_addr, admin = admin_addr.map(tracing::field::display), "virtengine-provider is up");
        Ok(Self {
            gateway_addr,
            ops_addr,
            admin_addr,
            live,
            store,
            stop_intake,
            stop_settlement,
            stop_rest,
            intake,
            spool: spool_task,
            driver,
            checking,
            rest,
            reload,
            _lock: lock,
        })
    }

    /// Where agents connect to.
    #[must_use]
    pub fn gateway_addr(&self) -> SocketAddr {
        self.gateway_addr
    }

    /// Where health, readiness and metrics are.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops_addr
    }

    /// Where operators connect to, if anywhere.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// The configuration in force.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Takes a changed gateway certificate, changed trusted CAs and a changed configuration into use; no connection is
    /// dropped.
    ///
    /// # Errors
    /// Names the file or key; everything stays as it was.
    pub async fn reload(&self) -> Result<(), StartError> {
        self.reload.run().await
    }

    /// Whether it works, for a watchdog.
    #[must_use]
    pub fn alive(&self) -> Alive {
        Alive::new(self.store.clone())
    }
}

/// This gateway's name among those that share a store, as Prometheus has it: host and port of its metrics.
fn instance(ops: SocketAddr) -> String {
    let host = rustix::system::uname();
    format!("{}:{}", host.nodename().to_string_lossy(), ops.port())
}

/// Writes the gateway's certificate and key.
fn store_server(home: &Home, cert: &str, key: &str) -> std::io::Result<()> {
    home::replace_private(&home.server_key(), key.as_bytes())?;
    home::replace_private(&home.server_cert(), cert.as_bytes())
}
