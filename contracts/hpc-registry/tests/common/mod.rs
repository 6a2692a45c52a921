//! A chain of one contract: real signatures, real storage, a clock that the test turns.
#![allow(dead_code, unreachable_pub)]

pub mod actors;
pub mod recount;
pub mod storage;
pub mod stored;

use std::marker::PhantomData;

use cosmwasm_std::testing::{MockApi, MockQuerier, message_info, mock_env};
use cosmwasm_std::{Addr, Coin, Empty, Env, OwnedDeps, Response, from_json};
use hpc_registry::contract;
use hpc_registry::error::ContractError;
use hpc_schema::code::Code;
use hpc_schema::node::NodeState;
use hpc_schema::registry::*;
use serde::de::DeserializeOwned;

pub use actors::{Agent, Provider, batch};
use storage::MeteredStorage;

pub const CHAIN_ID: &str = "test-chain";
pub const CLUSTER: &str = "hpc-cluster-1";
/// Seconds at which every test begins.
pub const T0: u64 = 1_800_000_000;

pub struct Chain {
    pub deps: OwnedDeps<MeteredStorage, MockApi, MockQuerier, Empty>,
    pub env: Env,
    pub admin: Addr,
    pub provider: Provider,
    nonce: u64,
}

pub type Outcome = Result<Response, ContractError>;

impl Chain {
    /// A contract without a cluster.
    pub fn bare() -> Self {
        let deps = OwnedDeps {
            storage: MeteredStorage::default(),
            api: MockApi::default().with_prefix("wasm"),
            querier: MockQuerier::default(),
            custom_query_type: PhantomData,
        };
        let mut env = mock_env();
        env.block.chain_id = CHAIN_ID.to_owned();
        env.block.time = cosmwasm_std::Timestamp::from_seconds(T0);
        env.contract.address = deps.api.addr_make("contract");
        let admin = deps.api.addr_make("admin");
        let mut chain = Self {
            deps,
            env,
            admin: admin.clone(),
            provider: Provider::new(1),
            nonce: 0,
        };
        let msg = InstantiateMsg {
            admin: None,
            params: ParamsUpdate::default(),
        };
        contract::instantiate(
            chain.deps.as_mut(),
            chain.env.clone(),
            message_info(&admin, &[]),
            msg,
        )
        .unwrap();
        chain
    }

    /// With one active cluster of `self.provider`.
    pub fn new() -> Self {
        let mut chain = Self::bare();
        chain.create_cluster(CLUSTER);
        chain
    }

    pub fn create_cluster(&mut self, id: &str) {
        self.provider_sends(serde_json::json!({"create_cluster": {"cluster_id": id}}))
            .unwrap();
        self.provider_sends(serde_json::json!({"activate_cluster": {"cluster_id": id}}))
            .unwrap();
    }

    pub fn now(&self) -> u64 {
        self.env.block.time.seconds()
    }

    pub fn advance(&mut self, seconds: u64) {
        self.env.block.time = self.env.block.time.plus_seconds(seconds);
        self.env.block.height += 1;
    }

    /// Executes; a refusal leaves the storage as it was, as on a chain.
    pub fn send_with(&mut self, sender: &Addr, funds: &[Coin], msg: ExecuteMsg) -> Outcome {
        let before = self.deps.storage.clone();
        let info = message_info(sender, funds);
        let outcome = contract::execute(self.deps.as_mut(), self.env.clone(), info, msg);
        if outcome.is_err() {
            self.deps.storage = before;
        }
        outcome
    }

    /// Executes JSON, as it stands in a transaction.
    pub fn send(&mut self, sender: &Addr, msg: serde_json::Value) -> Outcome {
        self.send_with(sender, &[], serde_json::from_value(msg).unwrap())
    }

    pub fn provider_sends(&mut self, msg: serde_json::Value) -> Outcome {
        let sender = self.provider.address(self);
        self.send(&sender, msg)
    }

    pub fn anyone_sends(&mut self, msg: serde_json::Value) -> Outcome {
        let anyone = self.deps.api.addr_make("anyone");
        self.send(&anyone, msg)
    }

    pub fn query<T: DeserializeOwned>(&self, msg: serde_json::Value) -> Result<T, ContractError> {
        let msg: QueryMsg = serde_json::from_value(msg).unwrap();
        let bytes = contract::query(self.deps.as_ref(), self.env.clone(), msg)?;
        Ok(from_json(bytes).unwrap())
    }

    pub fn node_in(&self, cluster: &str, id: &str) -> NodeView {
        let msg = serde_json::json!({"node": {"cluster_id": cluster, "node_id": id}});
        self.query::<NodeAnswer>(msg).unwrap().node
    }

    pub fn node(&self, id: &str) -> NodeView {
        self.node_in(CLUSTER, id)
    }

    pub fn recorded(&self, id: &str) -> NodeState {
        self.node(id).recorded_state
    }

    pub fn aggregate(&self, cluster: &str) -> AggregateAnswer {
        self.query(serde_json::json!({"aggregate": {"cluster_id": cluster}}))
            .unwrap()
    }

    pub fn fresh_nonce(&mut self) -> [u8; 32] {
        self.nonce += 1;
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&self.nonce.to_be_bytes());
        nonce
    }

    /// Registers a new node of `cluster` and gives its agent.
    pub fn register_in(&mut self, cluster: &str, id: &str) -> Agent {
        let mut agent = Agent::new(cluster, id);
        let msg = agent.registration(self);
        let answer: RegisterAnswer = data(&self.anyone_sends(msg).unwrap());
        agent.placed(&answer);
        agent
    }

    pub fn register(&mut self, id: &str) -> Agent {
        self.register_in(CLUSTER, id)
    }

    /// Registers `n` nodes, node-0000 and on.
    pub fn register_many(&mut self, cluster: &str, n: usize) -> Vec<Agent> {
        (0..n)
            .map(|i| self.register_in(cluster, &format!("node-{i:04}")))
            .collect()
    }

    /// Submits one message with these reports, one group a cluster.
    pub fn submit(&mut self, reports: Vec<(&Agent, actors::Signed)>) -> SubmitAnswer {
        data(&self.anyone_sends(batch(reports)).unwrap())
    }

    /// A healthy report of one node.
    pub fn beat(&mut self, agent: &mut Agent) -> SubmitAnswer {
        let report = agent.healthy(self.now());
        self.submit(vec![(agent, report)])
    }

    pub fn sweep(&mut self) -> SweepAnswer {
        data(
            &self
                .anyone_sends(serde_json::json!({"sweep": {"limit": 256}}))
                .unwrap(),
        )
    }
}

pub fn data<T: DeserializeOwned>(response: &Response) -> T {
    from_json(response.data.as_ref().expect("the response has data")).unwrap()
}

/// Our events of a response.
pub fn events(response: &Response) -> Vec<Event> {
    let attributes = |e: &cosmwasm_std::Event| -> Vec<(String, String)> {
        e.attributes
            .iter()
            .map(|a| (a.key.clone(), a.value.clone()))
            .collect()
    };
    response
        .events
        .iter()
        .map(|e| {
            let attributes = attributes(e);
            Event::parse(&e.ty, attributes.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap()
        })
        .collect()
}

/// Arrows among the events, as `node: from to reason`.
pub fn arrows(response: &Response) -> Vec<String> {
    let mut arrows = Vec::new();
    for event in events(response) {
        if let Event::Transition {
            node_id,
            from,
            to,
            reason,
            ..
        } = event
        {
            arrows.extend(node_id.0.iter().map(|id| format!("{id}: {from} {to} {reason}")));
        }
    }
    arrows
}

/// The code of a refusal, which also begins its text.
#[track_caller]
pub fn code<T: std::fmt::Debug>(outcome: Result<T, ContractError>) -> Code {
    let error = outcome.expect_err("refused");
    let code = error.code().unwrap_or_else(|| panic!("no code: {error}"));
    assert!(error.to_string().starts_with(&format!("{code}: ")), "{error}");
    assert!(error.to_string().ends_with(code.remedy()), "{error}");
    code
}

/// Outcomes of a message of `n` items by their number.
pub fn outcomes(answer: &SubmitAnswer, n: u32) -> Vec<Result<(), Code>> {
    let outcomes: Vec<_> = (0..n)
        .map(|i| match answer.refused.iter().find(|(at, _)| *at == i) {
            Some((_, number)) => Err(Code::from_number(*number).unwrap()),
            None => Ok(()),
        })
        .collect();
    assert_eq!(
        outcomes.iter().filter(|o| o.is_ok()).count(),
        answer.accepted as usize
    );
    outcomes
}

/// Properties with `at_64` cases where PROPTEST_CASES is 64, as in continuous integration, and in proportion elsewhere.
pub fn cases(at_64: u32) -> proptest::test_runner::Config {
    let asked = proptest::test_runner::Config::default().cases;
    proptest::test_runner::Config {
        cases: (asked.saturating_mul(at_64) / 64).max(1),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..proptest::test_runner::Config::default()
    }
}

/// Compares with a committed file; UPDATE_GOLDEN=1 writes it.
#[track_caller]
pub fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{path} differs from what the code does now:\n{text}"
    );
}
