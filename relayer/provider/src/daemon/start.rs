//! The daemon's beginning.

use std::net::SocketAddr;
use std::sync::Arc;

use hpc_chain::rpc::Follower;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::lead::Duties;
use super::reload::{Reload, Reread};
use super::running::Running;
use super::{Daemon, StartError, admin, check, files, open, probes, signers, tasks};
use crate::admin::http::Api;
use crate::admission::{Judge, Records};
use crate::config::{Config, Live};
use crate::control::Controls;
use crate::gateway::{self, Gateway, Parts, Tls};
use crate::home::Home;
use crate::identity::{Anchors, TokenKeys, Verifying};
use crate::ops::{self, Health, Metrics};
use crate::registry::{self, Registry, TaskKeys};
use crate::settle::{self, Claims, Wake};
use crate::spool::{Log, Spool};
use crate::store::Store;
use crate::{alert, backup, clock, events, openapi};

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
        open::sweep(&home);
        backup::sweep(&home);
        let store = Store::of(&home, &config.store).await?;
        let registry = Arc::new(Registry::new(&config.chain.id, &config.chain.contract));
        let client = open::client(&config)?;
        let (health, metrics) = (Arc::new(Health::starting()), Arc::new(Metrics::default()));
        let signing = signers::all(&keys.signers);
        signers::check(&signing, &health).await?;
        let asked = check::chain(&client, &config, &health).await?;
        check::fee_grants(&client, &keys.signers, &health).await?;
        store.bind(&config.chain.id, &config.chain.contract).await?;
        backup::tell(&home, &store).await?;
        let log = Log::open(&store).await?;
        registry::load(&store, &registry, clock::now()).await?;
        let controls = Arc::new(Controls::default());
        controls.refresh(&store).await?;
        // Not sooner: a rotation from here on is a change of files that is seen.
        let tokens = Verifying::load(&home)?;

        let anchors = Anchors::load(&keys.ca, &home.trusted_cas(), clock::now())?;
        let certificate = Arc::new(open::server_certificate(&home, &config, &keys.ca, clock::now())?);
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
        let (spool, spool_task) = Spool::start(store.clone(), log, Arc::clone(&wake));
        let backlog = spool.backlog();
        let records = Records::new(Arc::clone(&registry), Arc::clone(&controls), spool).keeping(live.clone());
        let judge = Judge::start(records)?.on(store.clone());
        let judging = judge.ended();
        let gateway = Arc::new(Gateway::new(Parts {
            config: config.clone(),
            live: live.clone(),
            ca: keys.ca,
            tokens: TokenKeys::new(tokens),
            tasks: TaskKeys::new(home.clone()),
            registry: Arc::clone(&registry),
            store: store.clone(),
            judge,
            metrics: Arc::clone(&metrics),
            wake: Arc::clone(&wake),
            controls: Arc::clone(&controls),
            anchors,
        }));
        let reload = Reload {
            home: home.clone(),
            gateway: Arc::downgrade(&gateway),
            tls: Arc::clone(&tls),
            certificate,
            health: Arc::clone(&health),
            store: store.clone(),
            live: live.clone(),
            reread,
            endpoints: client.chain().endpoints().clone(),
            turn: Arc::default(),
        };
        // Before anything counts as looked at, which would end what was said of it before the start.
        reload.look_at_server();
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
            backlog,
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
            standing: alert::Standing::default(),
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
            operator: keys.operator,
            credentials: Arc::default(),
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
            (store.clone(), Arc::clone(&shared.operator)),
            (Arc::downgrade(&gateway), Arc::clone(&shared.credentials)),
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
        let mut rest = Running::default();
        rest.start("the listener of health and metrics", ops_task);
        rest.start("the look at the endpoints", watching);
        rest.start("the judging of heartbeats", {
            let mut stop = rest_stops.clone();
            async move {
                tokio::select! {
                    () = judging => {}
                    _ = stop.wait_for(|s| *s) => {}
                }
            }
        });
        rest.start(
            "the look at the keys",
            signers::watch(signing, Arc::clone(&shared.health), rest_stops.clone()),
        );
        rest.start(
            "the reading of the chain",
            tasks::sync(shared.clone(), rest_stops.clone()),
        );
        let weak = || Arc::downgrade(&gateway);
        rest.start(
            "the look for operators' decisions",
            tasks::control(shared.clone(), reload.clone(), weak(), rest_stops.clone()),
        );
        rest.start(
            "the schedule of probes",
            probes::probes(shared.clone(), weak(), rest_stops.clone()),
        );
        rest.start(
            "the upkeep of the store",
            tasks::keep(shared, weak(), reload.clone(), rest_stops.clone()),
        );
        rest.watch("the admin listener", admin);
        let stops = (settlement_stops, rest_stops);
        let driver = Box::pin(duties.begin(keys.signers, stops, &mut rest)).await?;
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
            _follower: follower,
            _lock: lock,
        })
    }
}

/// This gateway's name among those that share a store, as Prometheus has it: host and port of its metrics.
fn instance(ops: SocketAddr) -> String {
    let host = rustix::system::uname();
    format!("{}:{}", host.nodename().to_string_lossy(), ops.port())
}
