//! A registry whose nodes have been silent for minutes and days: the contract's own code, run natively at times that
//! have passed, leaves the storage that a chain then has from its genesis on. Nothing has to be waited for.

use std::marker::PhantomData;

use anyhow::{Context, Result, ensure};
use cosmwasm_std::testing::{MockApi, MockQuerier, MockStorage, message_info, mock_env};
use cosmwasm_std::{Addr, Empty, Env, Order, OwnedDeps, Storage as _, Timestamp};
use hpc_chain::keys::LocalKey;
use hpc_registry::contract;
use hpc_schema::registry::{
    ExecuteMsg, InstantiateMsg, JobIds, ParamsUpdate, QueryMsg, RelayAnswer, ReportGroup, SubmitAnswer,
};

use super::fleet::{Domain, Fleet};
use super::reports::{Sections, batch};
use super::sender::PREFIX;

/// The cluster whose nodes become STALE.
pub const STALE_CLUSTER: &str = "bench-stale";
const MINUTE: u64 = 60;
const DAY: u64 = 86_400;

/// Its clusters, each with how long its nodes have been silent when the chain starts.
#[derive(Debug)]
pub struct Silent {
    /// What the contract stores.
    pub storage: Vec<(Vec<u8>, Vec<u8>)>,
    /// 17 minutes, STALE after 10.
    pub stale: Fleet,
    /// An hour, OFFLINE after half of it.
    pub offline: Fleet,
    /// Two days, OFFLINE on record, DEREGISTERED after one.
    pub gone: Fleet,
    /// Deregistered three days ago, to be forgotten after one.
    pub forgotten: Fleet,
}

struct Native {
    deps: OwnedDeps<MockStorage, MockApi, MockQuerier, Empty>,
    env: Env,
    owner: Addr,
}

impl Silent {
    /// The registry at `domain`, owned by `provider`, when it is `now`; `nodes` of every kind, `forgotten` of the last.
    ///
    /// # Errors
    /// If the contract refuses something.
    pub fn build(
        domain: Domain<'_>,
        provider: &LocalKey,
        now: u64,
        nodes: usize,
        forgotten: usize,
    ) -> Result<Self> {
        let mut native = Native::new(domain, provider.address(PREFIX)?);
        let mut fleet = |cluster: &str, count: usize, ago: u64| -> Result<Fleet> {
            let mut fleet = Fleet::new(cluster, count)?;
            native.at(now - ago);
            native.bring_up(&mut fleet, domain, provider)?;
            Ok(fleet)
        };
        let forgotten = fleet("bench-forgotten", forgotten, 3 * DAY)?;
        let gone = fleet("bench-gone", nodes, 2 * DAY)?;
        let offline = fleet("bench-offline", nodes, 60 * MINUTE)?;
        let stale = fleet(STALE_CLUSTER, nodes, 17 * MINUTE)?;
        // DEREGISTERED needs that OFFLINE stood on record for most of that time.
        native.at(now - 2 * DAY + 60 * MINUTE);
        native.execute(ExecuteMsg::Sweep {
            cluster_id: Some(gone.cluster.clone()),
            limit: None,
        })?;
        native.at(now - 3 * DAY);
        for node_id in forgotten.ids() {
            let cluster_id = Some(forgotten.cluster.clone());
            native.execute(ExecuteMsg::DeregisterNode { cluster_id, node_id })?;
        }
        let storage = native.deps.storage.range(None, None, Order::Ascending).collect();
        Ok(Self {
            storage,
            stale,
            offline,
            gone,
            forgotten,
        })
    }
}

impl Native {
    fn new(domain: Domain<'_>, owner: String) -> Self {
        let mut env = mock_env();
        env.block.chain_id = domain.chain_id.to_owned();
        env.contract.address = Addr::unchecked(domain.contract);
        Self {
            deps: OwnedDeps {
                storage: MockStorage::default(),
                api: MockApi::default().with_prefix(PREFIX),
                querier: MockQuerier::default(),
                custom_query_type: PhantomData,
            },
            env,
            owner: Addr::unchecked(owner),
        }
    }

    fn at(&mut self, time: u64) {
        self.env.block.time = Timestamp::from_seconds(time);
    }

    fn execute(&mut self, message: ExecuteMsg) -> Result<Option<cosmwasm_std::Binary>> {
        let info = message_info(&self.owner, &[]);
        Ok(contract::execute(self.deps.as_mut(), self.env.clone(), info, message)?.data)
    }

    /// A cluster whose nodes are registered and have reported once.
    fn bring_up(&mut self, fleet: &mut Fleet, domain: Domain<'_>, provider: &LocalKey) -> Result<()> {
        let now = self.env.block.time.seconds();
        if self
            .deps
            .storage
            .range(None, None, Order::Ascending)
            .next()
            .is_none()
        {
            let info = message_info(&self.owner, &[]);
            contract::instantiate(self.deps.as_mut(), self.env.clone(), info, slowest())?;
        }
        for message in create(fleet) {
            self.execute(message)?;
        }
        for message in fleet.registrations(domain, provider, now)? {
            self.execute(message)?;
        }
        let mut views = Vec::new();
        for ids in fleet.ids().chunks(100) {
            let question = QueryMsg::Relay {
                cluster_id: fleet.cluster.clone(),
                node_ids: ids.to_vec(),
            };
            let answer = contract::query(self.deps.as_ref(), self.env.clone(), question)?;
            views.extend(serde_json::from_slice::<RelayAnswer>(&answer)?.nodes);
        }
        fleet.place(domain, &views)?;
        let reports = fleet.reports(now, Sections::All, |_| true)?;
        let group = ReportGroup {
            cluster_id: fleet.cluster.clone(),
            reports: batch(&reports)?,
        };
        let answer = self.execute(ExecuteMsg::SubmitReports { groups: vec![group] })?;
        let answer: SubmitAnswer = serde_json::from_slice(&answer.context("no answer to the reports")?)?;
        ensure!(
            usize::try_from(answer.accepted)? == reports.len(),
            "{} of {} reports count",
            answer.accepted,
            reports.len()
        );
        Ok(())
    }
}

/// Parameters under which a state lasts longest, so that a slow machine measures the same as a fast one.
fn slowest() -> InstantiateMsg {
    let params = ParamsUpdate {
        heartbeat_timeout: Some(600),
        offline_threshold: Some(1_800),
        deregistration_delay: Some(86_400),
        retention: Some(86_400),
        ..ParamsUpdate::default()
    };
    InstantiateMsg { admin: None, params }
}

/// What makes a fleet's cluster.
pub(super) fn create(fleet: &Fleet) -> [ExecuteMsg; 2] {
    let cluster_id = fleet.cluster.clone();
    [
        ExecuteMsg::CreateCluster {
            cluster_id: cluster_id.clone(),
            name: None,
            region: None,
            gateway_endpoint: None,
            operators: Vec::new(),
            task_public_key: None,
            job_ids: JobIds::Plain,
        },
        ExecuteMsg::ActivateCluster { cluster_id },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_silent_registry_are_as_silent_as_it_says() {
        let domain = Domain {
            chain_id: "chain",
            contract: "wasm1x",
        };
        let provider = LocalKey::from_secret(&[7; 32]).unwrap();
        let now = 1_800_000_000;
        let silent = Silent::build(domain, &provider, now, 2, 3).unwrap();
        let mut native = Native::new(domain, provider.address(PREFIX).unwrap());
        for (key, value) in &silent.storage {
            cosmwasm_std::Storage::set(&mut native.deps.storage, key, value);
        }
        native.at(now);
        for (fleet, state) in [
            (&silent.stale, "stale"),
            (&silent.offline, "offline"),
            (&silent.gone, "offline"),
            (&silent.forgotten, "deregistered"),
        ] {
            let question = QueryMsg::Relay {
                cluster_id: fleet.cluster.clone(),
                node_ids: fleet.ids(),
            };
            let answer = contract::query(native.deps.as_ref(), native.env.clone(), question).unwrap();
            let answer: RelayAnswer = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer.nodes.len(), fleet.ids().len());
            for node in answer.nodes {
                assert_eq!(
                    serde_json::to_value(node.state).unwrap(),
                    state,
                    "{}",
                    node.node_id
                );
            }
        }
    }
}
