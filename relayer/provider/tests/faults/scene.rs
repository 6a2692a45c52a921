//! A site whose daemon sees the chain through proxies, one enrolled agent, and the daemon's log.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use hpc_chain::registry::events;
use hpc_chain::rpc::Client as Rpc;
use hpc_devnet::Config as DevnetConfig;
use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::registry::Event;
use reqwest::Client;
use tracing::subscriber::DefaultGuard;
use virtengine_provider::config::{Config, Span};

use crate::agent::{Agent, client, post};
use crate::logs::Logs;
use crate::proxy::Proxy;
use crate::site::{Site, eventually};

pub(crate) struct Scene {
    pub(crate) site: Site,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) logs: Logs,
    /// As the daemon was started with.
    pub(crate) config: Config,
    clients: Vec<Client>,
    /// Of those that were asked with.
    tokens: Vec<String>,
    sequence: u32,
    _logging: DefaultGuard,
}

/// What differs between scenes.
pub(crate) struct Setting {
    pub(crate) proxies: usize,
    pub(crate) agents: usize,
    pub(crate) relayer_has: &'static str,
    pub(crate) chain: fn(&mut DevnetConfig),
    pub(crate) config: fn(&mut Config),
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            proxies: 1,
            agents: 1,
            relayer_has: "1000000000000stake",
            chain: |_| {},
            config: |_| {},
        }
    }
}

impl Scene {
    pub(crate) async fn start() -> Self {
        Self::with(Setting::default()).await
    }

    pub(crate) async fn with(setting: Setting) -> Self {
        let mut scene = Self::prepare(setting).await;
        scene.enrol().await;
        scene
    }

    /// With the daemon running, and agents that are still to be enrolled.
    pub(crate) async fn prepare(setting: Setting) -> Self {
        let (logs, logging) = Logs::start();
        let mut site = Site::prepare_with(setting.chain, setting.relayer_has).await;
        let mut proxies = Vec::new();
        for _ in 0..setting.proxies {
            proxies.push(Proxy::start(site.devnet.rpc_url()).await);
        }
        let mut config = site.config();
        config.chain.rpc = proxies.iter().map(Proxy::url).collect();
        config.chain.tx_lifetime = Span::seconds(4);
        config.chain.halt_after = Span::seconds(2);
        config.chain.timeout = Span::millis(1500);
        (setting.config)(&mut config);
        let agents = (0..setting.agents)
            .map(|i| Agent::new(&format!("node-{i:04}")))
            .collect();
        site.start_with(config.clone()).await;
        Self {
            site,
            proxies,
            agents,
            logs,
            config,
            clients: Vec::new(),
            tokens: Vec::new(),
            sequence: 0,
            _logging: logging,
        }
    }

    /// One agent after the other.
    pub(crate) async fn enrol(&mut self) {
        for agent in &mut self.agents {
            let token = token(&self.site, agent).await;
            agent.register(&self.site, &token).await;
            self.clients.push(agent.client(&self.site));
        }
    }

    /// This one.
    pub(crate) async fn enrol_one(&mut self, index: usize) {
        let token = token(&self.site, &self.agents[index]).await;
        self.agents[index].register(&self.site, &token).await;
        self.clients.push(self.agents[index].client(&self.site));
    }

    /// The answer to a registration that was asked for before.
    pub(crate) async fn take_certificate(&mut self, index: usize) {
        let token = self.tokens[index].clone();
        self.agents[index].register(&self.site, &token).await;
        self.clients.push(self.agents[index].client(&self.site));
    }

    /// All at once.
    pub(crate) async fn enrol_together(&mut self) {
        // While the chain stands still at most the first goes out alone.
        self.site.devnet.halt();
        for index in 0..self.agents.len() {
            self.ask_to_register(index).await;
        }
        self.site.devnet.resume();
        let site = &self.site;
        for (agent, token) in self.agents.iter_mut().zip(&self.tokens) {
            agent.register(site, token).await;
            self.clients.push(agent.client(site));
        }
    }

    /// Asks once; the answer's status.
    pub(crate) async fn ask_to_register(&mut self, index: usize) -> u16 {
        let agent = &mut self.agents[index];
        let token = token(&self.site, agent).await;
        let body = agent.register_body(&token, &agent.csr);
        self.tokens.push(token);
        let client = client(&self.site.ca(), None);
        post(&client, &self.site, REGISTER_PATH, &body)
            .await
            .status()
            .as_u16()
    }

    /// The next heartbeat of every agent, each accepted.
    pub(crate) async fn beat(&mut self) {
        self.beat_of(0..self.agents.len()).await;
    }

    /// The next heartbeat of these agents, each accepted.
    pub(crate) async fn beat_of(&mut self, which: Range<usize>) {
        self.sequence += 1;
        for (agent, client) in self.agents[which.clone()].iter().zip(&self.clients[which]) {
            assert!(agent.beat(client, &self.site, self.sequence).await.accepted);
        }
    }

    /// The newest heartbeat of every agent is on chain.
    pub(crate) async fn settled(&self) {
        for agent in &self.agents {
            let what = format!("sequence {} of {} on chain", self.sequence, agent.node);
            self.waits(&what, async || {
                self.site.node(&agent.node).await.sequence >= self.sequence
            })
            .await;
        }
    }

    /// The log says so, now or within a minute.
    pub(crate) async fn says(&self, what: &str) -> String {
        self.waits(&format!("a log line with {what:?}"), async || {
            !self.logs.lines(what).is_empty()
        })
        .await;
        self.logs.lines(what).remove(0)
    }

    pub(crate) async fn waits(&self, what: &str, so: impl AsyncFnMut() -> bool) {
        let guard = Told(&self.logs);
        eventually(what, so).await;
        std::mem::forget(guard);
    }

    /// The first transaction of reports that the daemon signs from here on, as its line in the log.
    pub(crate) async fn signed(&self, before: usize) -> String {
        self.waits("a signed transaction", async || {
            self.logs.lines("transaction signed").len() > before
        })
        .await;
        self.logs.lines("transaction signed").remove(before)
    }

    pub(crate) fn signed_so_far(&self) -> usize {
        self.logs.lines("transaction signed").len()
    }

    /// How many reports the contract has accepted in all. No transaction is in the chain twice with an effect, and no report
    /// was refused.
    pub(crate) async fn effects(&self) -> u64 {
        let rpc: &Rpc = self.site.client.chain().endpoints().best().unwrap();
        let query = format!("execute._contract_address='{}'", self.site.contract);
        let (mut reports, mut page, mut seen) = (0, 1, BTreeSet::new());
        loop {
            let found = rpc.tx_search(&query, page, 100).await.unwrap();
            for tx in &found.txs {
                assert!(seen.insert(tx.hash), "a transaction is in the chain twice");
                for event in events(&tx.result, &self.site.contract).unwrap() {
                    if let Event::Batch { accepted, refused } = event {
                        reports += u64::from(accepted);
                        assert_eq!(refused, 0, "nothing was relayed a second time");
                    }
                }
            }
            if u64::from(page) * 100 >= found.total {
                return reports;
            }
            page += 1;
        }
    }

    /// Everything has come to its end, each report once, and the key goes on.
    pub(crate) async fn ends(mut self) {
        self.settled().await;
        let before = self.effects().await;
        let agents = u64::try_from(self.agents.len()).unwrap();
        assert_eq!(before, u64::from(self.sequence) * agents, "{}", self.logs.text());
        self.beat().await;
        self.settled().await;
        assert_eq!(self.effects().await, before + agents);
        self.site.stop_daemon().await;
    }

    pub(crate) async fn sleep(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

/// The command opens the same store: this thread must not hold it while the command waits.
async fn token(site: &Site, agent: &Agent) -> String {
    let (home, env, node, key) = (site.home(), site.env(), agent.node.clone(), agent.public());
    tokio::task::spawn_blocking(move || crate::site::token(&home, &env, &node, &key, "1h"))
        .await
        .unwrap()
}

/// Shows the log of a test that fails.
struct Told<'a>(&'a Logs);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        eprintln!("{}", self.0.text());
    }
}
