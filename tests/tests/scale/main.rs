//! 2,048 nodes in 4 clusters on wasmd: ten rounds of reports while one node in ten falls silent. After each round every
//! node's answer and every cluster's sums are what a recount by the documentation's rules gives (`rules.rs`).

mod fleet;
mod rules;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fleet::Fleet;
use hpc_chain::keys::LocalKey;
use hpc_chain::msg;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_schema::node::NodeState;
use hpc_schema::registry::{
    AggregateView, ExecuteMsg, InstantiateMsg, JobIds, NodeFilter, NodeView, ParamsUpdate, ReportGroup,
    SubmitAnswer,
};
use hpc_tests::bench::sender::{Done, PREFIX, Sender};
use hpc_tests::chain::{Chain, Kind};
use hpc_tests::raw::now;
use hpc_tests::{program, scene};
use rules::{Said, Thresholds};

const CLUSTERS: usize = 4;
const NODES: usize = 512;
const ROUNDS: usize = 10;
/// Time between two rounds' beginnings.
const PACE: Duration = Duration::from_secs(6);
/// The shortest that the protocol allows.
const LIMITS: Thresholds = Thresholds {
    timeout: 60,
    offline: 120,
};
/// Registrations in one transaction.
const REGISTRATIONS: usize = 128;
/// In these rounds the last cluster is inactive.
const INACTIVE: std::ops::RangeInclusive<usize> = 5..=6;

/// A contract, its one user, and the nodes.
struct Site {
    sender: Sender,
    client: RegistryClient,
    fleets: Vec<Fleet>,
}

/// What a block did.
struct Written {
    /// Its time.
    time: u64,
    gas: u64,
    bytes: usize,
    answers: Vec<Option<Vec<u8>>>,
}

impl Site {
    async fn deploy(rpc: &str, key: LocalKey) -> Result<Self> {
        let mut sender = Sender::connect(rpc, key).await?;
        let wasm = program::root().join("target/wasm/hpc_registry.wasm");
        let wasm = std::fs::read(wasm).context("the contract is missing. Remedy: scripts/wasm")?;
        let store = msg::store_code(&sender.address, wasm);
        let stored = sender.send(vec![store]).await?.answer;
        let id = String::from_utf8(response_data(&stored.result, 0)?.context("no code id")?)?.parse()?;
        let init = InstantiateMsg {
            admin: None,
            params: ParamsUpdate {
                heartbeat_interval: Some(10),
                heartbeat_timeout: u32::try_from(LIMITS.timeout).ok(),
                offline_threshold: u32::try_from(LIMITS.offline).ok(),
                deregistration_delay: Some(600),
                ..ParamsUpdate::default()
            },
        };
        let make = msg::instantiate(&sender.address, None, id, "scale", &init, &[])?;
        let made = sender.send(vec![make]).await?.answer;
        let contract = String::from_utf8(response_data(&made.result, 0)?.context("no address")?)?;
        let client = RegistryClient::new(sender.chain.clone(), contract);
        let fleets = (0..CLUSTERS).map(|n| Fleet::new(&format!("scale-{n}"), NODES));
        Ok(Self {
            sender,
            client,
            fleets: fleets.collect::<Result<_>>()?,
        })
    }

    /// Sends messages in one transaction.
    async fn send(&mut self, messages: &[ExecuteMsg]) -> Result<Written> {
        let any = messages
            .iter()
            .map(|m| self.client.execute(&self.sender.address, m, &[]))
            .collect::<Result<_, _>>()?;
        let Done { answer: done, spent } = self.sender.send(any).await?;
        let endpoint = self.sender.chain.endpoints().best().context("no endpoint")?;
        let block = endpoint.block(Some(done.height)).await?;
        let answers = (0..messages.len()).map(|n| response_data(&done.result, n));
        Ok(Written {
            time: block.time_ms / 1_000,
            gas: done.result.gas_used,
            bytes: usize::try_from(spent.bytes)?,
            answers: answers.collect::<Result<_, _>>()?,
        })
    }

    /// Clusters created and active, all nodes registered.
    async fn register(&mut self) -> Result<()> {
        let mut messages = Vec::new();
        for fleet in &self.fleets {
            messages.push(ExecuteMsg::CreateCluster {
                cluster_id: fleet.cluster.clone(),
                name: None,
                region: None,
                gateway_endpoint: None,
                operators: Vec::new(),
                task_public_key: None,
                job_ids: JobIds::None,
            });
            messages.push(ExecuteMsg::ActivateCluster {
                cluster_id: fleet.cluster.clone(),
            });
        }
        self.send(&messages).await?;
        for at in 0..CLUSTERS {
            let contract = self.client.contract().to_owned();
            let fleet = self.fleets.get(at).context("no such cluster")?;
            let messages = fleet.registrations(&self.sender, &contract, now()?)?;
            let ids: Vec<_> = fleet.nodes.iter().map(|n| n.id.clone()).collect();
            for chunk in messages.chunks(REGISTRATIONS) {
                self.send(chunk).await?;
            }
            let (chain_id, mut views) = (self.sender.chain_id.clone(), Vec::new());
            let fleet = self.fleets.get_mut(at).context("no such cluster")?;
            for chunk in ids.chunks(100) {
                let relay = self.client.relay(fleet.cluster.clone(), chunk.to_vec()).await?;
                views.extend(relay.value.nodes);
            }
            fleet.place(&chain_id, &contract, &views)?;
        }
        Ok(())
    }

    /// Switches the last cluster.
    async fn switch(&mut self, active: bool) -> Result<()> {
        let fleet = self.fleets.last_mut().context("no cluster")?;
        if fleet.active == active {
            return Ok(());
        }
        fleet.active = active;
        let cluster_id = fleet.cluster.clone();
        self.send(&[if active {
            ExecuteMsg::ActivateCluster { cluster_id }
        } else {
            ExecuteMsg::DeactivateCluster { cluster_id }
        }])
        .await
        .map(drop)
    }

    /// All reports of a round, a message for each cluster, in one transaction.
    async fn round(&mut self, round: usize) -> Result<(Written, usize)> {
        let (time, mut messages, mut sent) = (now()?, Vec::new(), Vec::new());
        for fleet in &self.fleets {
            let (reports, said) = fleet.batch(round, time)?;
            sent.push(said);
            messages.push(ExecuteMsg::SubmitReports {
                groups: vec![ReportGroup {
                    cluster_id: fleet.cluster.clone(),
                    reports,
                }],
            });
        }
        let written = self.send(&messages).await?;
        let mut reports = 0;
        for ((fleet, said), answer) in self.fleets.iter_mut().zip(sent).zip(&written.answers) {
            let answer = answer.as_deref().context("no answer to submit_reports")?;
            let answer: SubmitAnswer = serde_json::from_slice(answer)?;
            ensure!(
                usize::try_from(answer.accepted)? == said.len() && answer.refused.is_empty(),
                "not every report was accepted: {answer:?}"
            );
            reports += said.len();
            for (at, said) in said {
                let node: &mut fleet::Node = fleet.nodes.get_mut(at).context("no such node")?;
                let said: Said = said;
                node.history.hear(said, written.time, LIMITS);
            }
        }
        Ok((written, reports))
    }

    /// Compares all that the contract answers with the recount.
    async fn compare(&self, written: u64) -> Result<()> {
        for fleet in &self.fleets {
            let filter = NodeFilter {
                cluster_id: Some(fleet.cluster.clone()),
                ..NodeFilter::default()
            };
            let (mut after, mut seen) = (None, 0);
            loop {
                let page = self.client.nodes(filter.clone(), after, Some(100)).await?.value;
                for view in &page.nodes {
                    let node = fleet.nodes.get(seen).context("more nodes than were registered")?;
                    seen += 1;
                    same(fleet, node, view, page.block.time.0, written)?;
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            ensure!(seen == NODES, "{seen} nodes are listed in {}", fleet.cluster);

            let sums = self.client.aggregate(fleet.cluster.clone()).await?.value;
            let recount = |at| {
                let nodes = fleet.nodes.iter().map(|n| (&n.history, n.gpu_type()));
                rules::recount(nodes, fleet.active, at, LIMITS)
            };
            equal("recorded", fleet, sums.recorded, &recount(written))?;
            let effective = sums.effective.context("no effective sums")?;
            equal("effective", fleet, effective, &recount(sums.block.time.0))?;
        }
        Ok(())
    }
}

fn same(fleet: &Fleet, node: &fleet::Node, view: &NodeView, at: u64, written: u64) -> Result<()> {
    ensure!(
        view.node_id == node.id,
        "expected {}, got {}",
        node.id,
        view.node_id
    );
    if let Some(difference) = node.history.differs(view, at, written, LIMITS) {
        return Err(anyhow!("{difference}"));
    }
    ensure!(
        !node.history.latency_differs(view),
        "{}: latency is {} µs",
        node.id,
        view.avg_latency_us
    );
    let gpu_type = node.history.said.map_or("", |_| node.gpu_type());
    ensure!(
        view.resources.gpu_type.as_deref().unwrap_or("") == gpu_type,
        "{}: GPU type {:?}",
        node.id,
        view.resources.gpu_type
    );
    let works = view
        .health_status
        .as_deref()
        .is_some_and(|s| s == "healthy" || s == "degraded");
    let schedulable = fleet.active && view.state == NodeState::Active && works;
    ensure!(
        view.active == schedulable,
        "{}: active is {}",
        node.id,
        view.active
    );
    Ok(())
}

fn equal(what: &str, fleet: &Fleet, mut found: AggregateView, expected: &AggregateView) -> Result<()> {
    found.gpus_by_type.sort_by(|a, b| a.gpu_type.cmp(&b.gpu_type));
    ensure!(
        found == *expected,
        "{what} sums of {}: the contract has\n{found:?}\nthe recount gives\n{expected:?}",
        fleet.cluster
    );
    Ok(())
}

#[test]
fn two_thousand_nodes_on_wasmd_are_what_a_recount_says_at_each_round() -> Result<()> {
    scene::run("scale", |scene, _| {
        let key = LocalKey::from_secret(&[7; 32])?;
        let chain = Chain::start(scene, Kind::Wasmd, &[&key.address(PREFIX)?])?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(run(&chain.rpc(), key))
    })
}

async fn run(rpc: &str, key: LocalKey) -> Result<()> {
    let began = Instant::now();
    let mut site = Site::deploy(rpc, key).await?;
    site.register().await?;
    println!(
        "{} nodes registered in {CLUSTERS} clusters after {:.0?}",
        CLUSTERS * NODES,
        began.elapsed()
    );
    let mut seen = Vec::new();
    for round in 1..=ROUNDS {
        let started = Instant::now();
        site.switch(!INACTIVE.contains(&round)).await?;
        let (written, reports) = site.round(round).await?;
        let submitted = started.elapsed();
        site.compare(written.time)
            .await
            .with_context(|| format!("round {round}"))?;
        let states = site
            .fleets
            .iter()
            .flat_map(|f| &f.nodes)
            .map(|n| n.history.state(written.time, LIMITS));
        let mut counts = [0; 7];
        for state in states {
            if let Some(count) = counts.get_mut(usize::from(state.number()) - 1) {
                *count += 1;
            }
        }
        println!(
            "round {round:>2}: {reports} reports, {} gas ({} each), {} bytes, in a block after {submitted:.1?}, all compared after {:.1?}; pending, active, stale, draining, drained, offline: {:?}",
            written.gas,
            written.gas / u64::try_from(reports)?,
            written.bytes,
            started.elapsed(),
            counts.get(..6).unwrap_or_default()
        );
        seen.push(counts);
        tokio::time::sleep(PACE.saturating_sub(started.elapsed())).await;
    }
    // The run has shown what it is there to show: every state but DEREGISTERED, and nodes that came back.
    for state in 0..6 {
        ensure!(
            seen.iter().any(|c| c.get(state).is_some_and(|n| *n > 0)),
            "no node was ever in state {}",
            state + 1
        );
    }
    let recovered = site
        .fleets
        .iter()
        .flat_map(|f| &f.nodes)
        .filter(|n| n.history.recovered())
        .count();
    ensure!(recovered > 0, "no node came back from OFFLINE");
    println!(
        "{recovered} nodes came back from OFFLINE; {:.0?} in all",
        began.elapsed()
    );
    Ok(())
}
