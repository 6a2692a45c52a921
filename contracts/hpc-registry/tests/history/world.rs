//! A contract under arbitrary messages, with what must hold after each of them.

use std::collections::BTreeMap;

use cosmwasm_std::{Addr, Coin, coin};
use hpc_registry::contract;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::{ExecuteMsg, MigrateMsg, SubmitAnswer};

use crate::check::refused;
use crate::common::*;
use crate::follow::Story;
use crate::message::{CLUSTERS, NODES};
use crate::step::{Beat, Enrolment, Step};

/// Agents that messages name: five of each cluster.
pub(crate) const NAMED: u8 = 15;
/// Agents more of the first cluster of a large world: with its first two nodes they fill a page.
pub(crate) const CROWD: u8 = 62;

/// Id of an agent of the crowd.
pub(crate) fn crowd(n: u8) -> String {
    format!("crowd-{n:02}")
}

/// How a history begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beginning {
    /// With the shortest thresholds, so that a report can be older than the silence that it ends.
    pub(crate) tight: bool,
    /// With more nodes in the first cluster than a page holds, all but one of which report.
    pub(crate) large: bool,
}

/// Sequence and last heartbeat of a node in one epoch.
pub(crate) type Progress = BTreeMap<(u32, (u16, u8)), (u64, u32, u32)>;

pub(crate) struct World {
    pub(crate) chain: Chain,
    /// One for each cluster and node; on record or not.
    agents: Vec<Agent>,
    /// Agents of registrations before, whose reports must not get in any more.
    former: Vec<Agent>,
    providers: Vec<Provider>,
    pub(crate) story: Story,
    pub(crate) progress: Progress,
    last_identity: Option<serde_json::Value>,
    /// Everything that the contract told.
    pub(crate) heard: Vec<hpc_schema::registry::Event>,
}

impl World {
    pub(crate) fn new(Beginning { tight, large }: Beginning) -> Self {
        let mut agents = Vec::new();
        for cluster in CLUSTERS {
            agents.extend(NODES.map(|node| Agent::new(cluster, node)));
        }
        if large {
            agents.extend((0..CROWD).map(|n| Agent::new(CLUSTERS[0], &crowd(n))));
        }
        let mut world = Self {
            chain: Chain::bare(),
            agents,
            former: Vec::new(),
            providers: (1..=3).map(Provider::new).collect(),
            story: Story::default(),
            progress: BTreeMap::new(),
            last_identity: None,
            heard: Vec::new(),
        };
        world.story.admin = world.chain.admin.to_string();
        if tight {
            let params = serde_json::json!({"heartbeat_timeout": 60, "offline_threshold": 120});
            let msg = serde_json::json!({"update_params": {"params": params}});
            let admin = world.chain.admin.clone();
            world
                .execute(&admin, &[], serde_json::from_value(msg).unwrap())
                .unwrap();
        }
        // Two clusters with two nodes each, so that histories begin in the middle of things.
        for cluster in 0..2 {
            let owner = world.actor(1 + cluster);
            for verb in ["create_cluster", "activate_cluster"] {
                let msg = serde_json::json!({verb: {"cluster_id": CLUSTERS[cluster as usize]}});
                world
                    .execute(&owner, &[], serde_json::from_value(msg).unwrap())
                    .unwrap();
            }
            for node in 0..2 {
                world.step(&Step::Enrol(Enrolment {
                    agent: cluster * 5 + node,
                    fingerprint: Some(cluster * 2 + node),
                    ..Enrolment::default()
                }));
            }
        }
        if large {
            world.fill();
        }
        world.check();
        world
    }

    /// The crowd comes, and after it the first node of a second page.
    fn fill(&mut self) {
        let all = (NAMED..NAMED + CROWD).chain([2]);
        for agent in all.clone() {
            self.step(&Step::Enrol(Enrolment {
                agent,
                ..Enrolment::default()
            }));
        }
        assert_eq!((self.agents[2].page, self.agents[2].slot), (1, 0));
        let beats = all.map(Beat::plain).collect();
        self.step(&Step::Report { beats, noise: vec![] });
    }

    /// The cast: the first admin, three providers, and others who may be made operators, owners or admins.
    fn actor(&self, i: u8) -> Addr {
        match i {
            0 => self.chain.admin.clone(),
            1..=3 => self.providers[usize::from(i) - 1].address(&self.chain),
            other => self.chain.deps.api.addr_make(&format!("actor {other}")),
        }
    }

    /// The sender who is most likely allowed, else the one named.
    fn sender(&self, named: u8, right: bool, msg: &ExecuteMsg) -> Addr {
        let json = serde_json::to_value(msg).unwrap();
        let (kind, fields) = json.as_object().unwrap().iter().next().unwrap();
        if !right {
            return self.actor(named % 8);
        }
        if ["update_params", "propose_admin", "pause_registrations"].contains(&kind.as_str()) {
            return Addr::unchecked(&self.story.admin);
        }
        let owner = fields["cluster_id"]
            .as_str()
            .and_then(|id| self.story.clusters.get(id));
        owner.map_or_else(|| self.actor(named % 8), |c| Addr::unchecked(&c.owner))
    }

    /// `@n` stands for an actor's address.
    pub(crate) fn cast<T: serde::Serialize + serde::de::DeserializeOwned>(&self, value: &T) -> T {
        fn replace(world: &World, value: &mut serde_json::Value) {
            match value {
                serde_json::Value::String(s) => {
                    if let Some(i) = s.strip_prefix('@').and_then(|n| n.parse::<u8>().ok()) {
                        *s = world.actor(i).into_string();
                    }
                }
                serde_json::Value::Array(all) => all.iter_mut().for_each(|v| replace(world, v)),
                serde_json::Value::Object(all) => all.values_mut().for_each(|v| replace(world, v)),
                _ => {}
            }
        }
        let mut json = serde_json::to_value(value).unwrap();
        replace(self, &mut json);
        serde_json::from_value(json).unwrap()
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(seconds) => self.chain.advance(*seconds),
            Step::Send {
                by,
                right,
                funds,
                msg,
            } => {
                let msg: ExecuteMsg = self.cast(&**msg);
                let sender = self.sender(*by, *right, &msg);
                let funds: Vec<_> = (0..*funds).map(|i| coin(1 + u128::from(i), "stake")).collect();
                let _outcome = self.execute(&sender, &funds, msg);
            }
            Step::Enrol(how) => self.enrol(how),
            Step::Report { beats, noise } => self.report(beats, noise),
            Step::Migrate => {
                let migrated =
                    contract::migrate(self.chain.deps.as_mut(), self.chain.env.clone(), MigrateMsg {})
                        .unwrap();
                assert_eq!(events(&migrated).len(), 1);
            }
        }
    }

    /// Sends as a transaction does; a refusal changes nothing, what is done is told.
    pub(crate) fn execute(&mut self, sender: &Addr, funds: &[Coin], msg: ExecuteMsg) -> Outcome {
        let before = self.chain.deps.storage.map.clone();
        let outcome = self.chain.send_with(sender, funds, msg);
        match &outcome {
            Ok(response) => {
                let now = self.chain.now();
                for event in events(response) {
                    self.heard.push(event.clone());
                    self.story.hear(event, now);
                }
            }
            Err(error) => {
                refused(error);
                assert_eq!(self.chain.deps.storage.map, before);
            }
        }
        outcome
    }

    fn enrol(&mut self, how: &Enrolment) {
        let at = usize::from(how.agent) % self.agents.len();
        let old = self.agents[at].clone();
        let mut agent = old.clone();
        agent.fingerprint = how.fingerprint.map(|n| format!("{n:064x}"));
        let own = CLUSTERS.iter().position(|c| *c == agent.cluster).unwrap_or(0);
        let provider = self.providers[how.provider.map_or(own, usize::from)].clone();
        // Identities name the cluster's owner, whoever signs.
        let owner = self.story.clusters.get(&agent.cluster).map_or_else(
            || provider.address(&self.chain).into_string(),
            |c| c.owner.clone(),
        );
        let mut msg = if how.new_key {
            agent.rotation(
                &mut self.chain,
                actors::key_of(&format!("{} {}", old.epoch, how.agent)),
            )
        } else {
            agent.registration(&mut self.chain)
        };
        let mut identity = msg["register_node"]["node_identity"].clone();
        identity["provider_address"] = owner.into();
        if let (true, Some(last)) = (how.replay, &self.last_identity) {
            identity["registration_nonce"] = last["registration_nonce"].clone();
        }
        let rotation = msg["register_node"]["rotation_signature"].take();
        let identity: NodeIdentity = serde_json::from_value(identity).unwrap();
        msg = provider.vouch(&self.chain, &identity);
        if how.consent {
            msg["register_node"]["rotation_signature"] = rotation;
        }
        let sender = self.actor(7);
        let outcome = self.execute(&sender, &[], serde_json::from_value(msg).unwrap());
        if let Ok(response) = outcome {
            agent.placed(&data(&response));
            // What it last said of itself stays on record with the slot.
            agent.attach = true;
            self.last_identity = Some(serde_json::to_value(&identity).unwrap());
            if old.epoch > 0 {
                self.former.push(old);
            }
            self.agents[at] = agent;
        }
    }

    fn report(&mut self, beats: &[Beat], noise: &[u8]) {
        let now = self.chain.now();
        let mut reports: Vec<(Agent, actors::Signed)> = Vec::new();
        for beat in beats {
            let pool = if beat.former && !self.former.is_empty() {
                &mut self.former
            } else {
                &mut self.agents
            };
            let at = usize::from(beat.agent) % pool.len();
            let agent = &mut pool[at];
            let section = &mut agent.section;
            section.gpu_type = ["", "A100", "H100"][usize::from(beat.gpu) % 3].to_owned();
            section.jobs = (0..beat.jobs).map(|i| format!("slurm-{i}")).collect();
            section.jobs_total = u16::from(beat.jobs);
            agent.attach = beat.attach;
            let before = agent.sequence;
            agent.sequence = agent.sequence.saturating_add(beat.ahead).max(1);
            let time = (now + 70).saturating_sub(u64::from(beat.age));
            let time = u32::try_from(time).unwrap_or(u32::MAX);
            let mut signed = agent.with_figures(u64::from(time), beat.status, &beat.figures());
            if beat.replayed {
                agent.sequence = before;
            }
            signed.signature[0] ^= u8::from(beat.forged);
            reports.push((agent.clone(), signed));
        }
        reports.sort_by_key(|(a, _)| (a.cluster.clone(), a.page, a.slot));
        reports.dedup_by_key(|(a, _)| (a.cluster.clone(), a.page, a.slot));
        let base = reports.iter().map(|(_, r)| r.report.time).min().unwrap_or(0);
        reports.retain(|(_, r)| r.report.time - base <= u32::from(u16::MAX));
        let mut groups = actors::groups(reports.iter().map(|(a, r)| (a, r.clone())).collect());
        if !noise.is_empty() {
            // Trailing bytes behind good ones, and a group of nothing but noise.
            if let Some((_, bytes)) = groups.first_mut() {
                bytes.extend(noise);
            }
            groups.push((CLUSTERS[0].to_owned(), noise.to_vec()));
        }
        let msg: ExecuteMsg = serde_json::from_value(actors::submit_msg(&groups)).unwrap();
        let sender = self.actor(7);
        self.progress();
        let before = self.progress.clone();
        if let Ok(response) = self.execute(&sender, &[], msg) {
            let answer: SubmitAnswer = data(&response);
            self.progress();
            let risen = self
                .progress
                .iter()
                .filter(|(at, now)| before.get(at).is_some_and(|was| was.0 == now.0 && was.1 < now.1))
                .count();
            assert_eq!(
                risen, answer.accepted as usize,
                "a sequence rises with each accepted report and no other"
            );
        }
    }
}
