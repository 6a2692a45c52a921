//! Whatever is killed, whenever: what was accepted is on chain, superseded, or ended with a recorded refusal; nothing
//! takes effect twice. Both are counted: in the chain's blocks, and in the provider's record of how its reports ended.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::ledger::{Ledger, Name};
use hpc_tests::outcome::Outcome;
use hpc_tests::raw::{RawAgent, key, public};
use hpc_tests::scene::{self, Scene};
use hpc_tests::site::{End, SETTLED, Site};
use hpc_tests::{program, wait};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const NODES: u8 = 4;

/// Where `virtengine_provider::fault` can kill the daemon; that list is checked against this one.
const STEPS: [&str; 17] = [
    "admit.verified",
    "spool.written",
    "spool.applying",
    "spool.applied",
    "spool.committed",
    "settle.submitted",
    "settle.planned",
    "settle.signed",
    "settle.persisting",
    "settle.persisted",
    "settle.broadcasting",
    "settle.broadcast",
    "settle.found",
    "settle.ended",
    "settle.outcomes",
    "settle.settling",
    "settle.settled",
];

#[test]
fn every_step_of_the_provider_is_killed_at() -> Result<()> {
    let source = std::fs::read_to_string(program::root().join("relayer/provider/src/fault.rs"))?;
    let list = source
        .split_once("STEPS: &[&str] = &[")
        .context("no list of steps")?
        .1;
    let list = list.split_once("];").context("the list has no end")?.0;
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(names, STEPS);
    Ok(())
}

/// How often something is killed; `HPC_TEST_RUNS` in full runs.
fn runs() -> u64 {
    std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(5)
}

/// Nodes that report by the test's hand, and the sequences of each that the gateway accepted.
struct Fleet {
    agents: Vec<RawAgent>,
    accepted: Vec<Vec<u64>>,
    next: u64,
}

impl Fleet {
    fn register(scene: &Scene, site: &Site) -> Result<Self> {
        let mut agents = Vec::new();
        for number in 1..=NODES {
            let key = key(number);
            let token = site.token(&format!("node-hpc1-compute-{number:03}"), &public(&key), "1h")?;
            agents.push(site.gateway().register(scene, &token, &key)?);
        }
        Ok(Self {
            accepted: vec![Vec::new(); agents.len()],
            agents,
            next: 1,
        })
    }

    /// One heartbeat of every node; notes which ones were accepted. A gateway that is down accepts none.
    fn report(&mut self) -> Result<()> {
        let sequence = self.next;
        self.next += 1;
        for (agent, accepted) in self.agents.iter().zip(&mut self.accepted) {
            if agent.send(&agent.draft(sequence)?)?.accepted() {
                accepted.push(sequence);
            }
        }
        Ok(())
    }

    /// One heartbeat of every node, each of which must be accepted.
    fn report_all(&mut self) -> Result<()> {
        self.report()?;
        let sent = self.next - 1;
        ensure!(
            self.accepted.iter().all(|a| a.last() == Some(&sent)),
            "not every heartbeat {sent} was accepted: {:?}",
            self.accepted
        );
        Ok(())
    }

    /// Waits until the chain has what was accepted last of every node.
    fn settle(&self, site: &Site) -> Result<()> {
        for (agent, accepted) in self.agents.iter().zip(&self.accepted) {
            let last = accepted.last().copied().unwrap_or_default();
            let settled = site.wait_sequence(agent.node.as_str(), last)?;
            ensure!(
                settled < self.next,
                "the chain has a sequence that was never sent: {settled}"
            );
        }
        Ok(())
    }

    /// What was begun before has come to its end, and what comes now goes on: a further report of every node is on chain, for
    /// which the key's sequence must not be stuck, and no transaction stays open.
    fn goes_on(&mut self, site: &Site) -> Result<()> {
        self.report_all()?;
        self.settle(site)?;
        // The provider notes an end a moment after the block.
        wait::until("no transaction to be open", SETTLED, || {
            Ok((site.open_transactions()? == 0).then_some(()))
        })
    }

    /// What the blocks and the provider's record say of every heartbeat that was accepted: it took effect exactly
    /// once, a later one took its place, or it ended with a refusal that is on record. Nothing took effect twice.
    fn account(&self, site: &Site) -> Result<()> {
        // The provider notes an end a moment after the block.
        wait::until("an end of every accepted heartbeat", SETTLED, || {
            let ledger = Ledger::read(&site.chain.rpc(), &site.contract)?;
            let applied = ledger.applied_once()?;
            let mut sums = [0; 3];
            for (agent, accepted) in self.agents.iter().zip(&self.accepted) {
                let (epoch, ends) = site.ends(agent.node.as_str())?;
                for sequence in accepted {
                    let name = Name {
                        node: agent.node.to_string(),
                        epoch,
                        sequence: u32::try_from(*sequence)?,
                    };
                    let kind = fate(&ledger, &name, &ends)?;
                    if let Some(sum) = sums.get_mut(kind) {
                        *sum += 1;
                    }
                }
            }
            let [effective, superseded, refused] = sums;
            println!(
                "{} blocks, {applied} reports took effect, each once; of {} accepted heartbeats {effective} did, \
                 {superseded} were superseded, {refused} refused on record",
                ledger.blocks(),
                self.accepted.iter().map(Vec::len).sum::<usize>()
            );
            Ok(Some(()))
        })
    }
}

/// 0: it took effect; 1: a later one took its place before it was sent; 2: its refusal is on record.
fn fate(ledger: &Ledger, name: &Name, ends: &[End]) -> Result<usize> {
    let applied = ledger.of(name).iter().find(|e| e.refused.is_none());
    if let Some(end) = ends.iter().find(|e| e.sequence == name.sequence) {
        let as_recorded = match end.ended.as_str() {
            "on_chain" => applied.is_some_and(|a| Some(a.height) == end.height),
            _ => applied.is_none() && end.code.is_some(),
        };
        ensure!(
            as_recorded,
            "{name:?}: recorded as {end:?}, on chain {:?}",
            ledger.of(name)
        );
        return Ok(if applied.is_some() { 0 } else { 2 });
    }
    let replaced =
        |e: &&End| e.superseded_from.is_some_and(|from| from <= name.sequence) && e.sequence > name.sequence;
    ensure!(
        ends.iter().any(|e| replaced(&e)) && applied.is_none(),
        "{name:?}: no end on record, on chain {:?}",
        ledger.of(name)
    );
    Ok(1)
}

#[test]
fn a_provider_killed_at_any_step_loses_nothing_that_it_accepted() -> Result<()> {
    scene::run("kill-steps", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let mut fleet = Fleet::register(scene, &site)?;
        for step in STEPS {
            site.kill_provider()?;
            site.start_provider_to_die_at(step)?;
            // The daemon dies within this round, before or after it has answered.
            fleet.report()?;
            let died = || Ok(site.provider()?.check_alive().is_err().then_some(()));
            wait::until(&format!("the provider to die at {step}"), SETTLED, died)?;
            site.kill_provider()?;
            site.start_provider()?;
            fleet
                .settle(&site)
                .with_context(|| format!("after the kill at {step}"))?;
        }
        fleet.goes_on(&site)?;
        fleet.account(&site)?;
        let mut outcome = Outcome::new(kind, "kill-steps");
        outcome.set("states", states(&site, &fleet)?);
        outcome.save()
    })
}

#[test]
fn a_provider_killed_at_any_moment_loses_nothing_that_it_accepted() -> Result<()> {
    scene::run("kill-provider", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let mut fleet = Fleet::register(scene, &site)?;
        // Seeded: a failure can be run again. The pauses cover a whole batch from spool to block.
        for seed in 0..runs() {
            let mut chance = StdRng::seed_from_u64(seed);
            // Every other time once more, in the middle of what it takes up again.
            for kill in 0..=seed % 2 {
                let pause = chance.random_range(0..2500);
                fleet.report()?;
                sleep(Duration::from_millis(pause));
                site.kill_provider()?;
                site.start_provider()
                    .with_context(|| format!("after kill {kill} of seed {seed}"))?;
            }
            fleet
                .goes_on(&site)
                .with_context(|| format!("after the kills of seed {seed}"))?;
        }
        fleet.account(&site)?;
        let mut outcome = Outcome::new(kind, "kill-provider");
        outcome.set("states", states(&site, &fleet)?);
        outcome.save()
    })
}

#[test]
fn a_chain_killed_at_any_moment_keeps_its_state_and_gets_what_was_accepted() -> Result<()> {
    scene::run("kill-chain", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let mut fleet = Fleet::register(scene, &site)?;
        for seed in 0..runs() {
            let mut chance = StdRng::seed_from_u64(1_000 + seed);
            // Every other time once more, before all is settled.
            for kill in 0..=seed % 2 {
                let pause = chance.random_range(0..2500);
                fleet.report()?;
                sleep(Duration::from_millis(pause));
                let before = site.chain.height()?;
                site.chain.kill()?;
                // Accepted while the chain is away: spooled.
                fleet.report_all()?;
                site.chain.resume()?;
                ensure!(
                    site.chain.height()? > before,
                    "the chain forgot blocks at kill {kill} of seed {seed}"
                );
            }
            fleet
                .goes_on(&site)
                .with_context(|| format!("after the kills of seed {seed}"))?;
        }
        fleet.account(&site)?;
        let mut outcome = Outcome::new(kind, "kill-chain");
        outcome.set("states", states(&site, &fleet)?);
        site.chain.verify()?;
        outcome.save()
    })
}

fn states(site: &Site, fleet: &Fleet) -> Result<Vec<String>> {
    fleet
        .agents
        .iter()
        .map(|agent| site.state(agent.node.as_str()))
        .collect()
}
