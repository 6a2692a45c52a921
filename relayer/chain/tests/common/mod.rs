//! The embedded chain with two funded keys.

use std::time::Duration;

use hpc_chain::gas::Adjustment;
use hpc_chain::keys::LocalKey;
use hpc_chain::query::Chain;
use hpc_chain::rpc::{ClientOptions, Endpoints};
use hpc_chain::send::{Gas, Pay, SendOptions};
use hpc_devnet::{Config, Devnet, Genesis, GenesisAccount, Handle};

#[path = "../../../../tests/src/deadline.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other suites")]
mod deadline;

pub(crate) const CHAIN_ID: &str = "testing-1";
/// As SDK 0.54 numbers accounts: the top bit is set.
pub(crate) const TOP_BIT: u64 = 16_248_300_979_261_217_383;

pub(crate) struct World {
    pub(crate) devnet: Handle,
    pub(crate) chain: Chain,
    pub(crate) alice: LocalKey,
    pub(crate) bob: LocalKey,
    // The last: letting the others go may hang too.
    _deadline: deadline::Deadline,
}

impl World {
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let alice = LocalKey::from_secret(&[1; 32]).unwrap();
        let bob = LocalKey::from_secret(&[2; 32]).unwrap();
        let mut rich = GenesisAccount::new(address(&alice), "1000000000stake");
        rich.number = Some(TOP_BIT);
        let deadline = deadline::Deadline::of_test();
        let mut config = Config::ephemeral(Genesis::new(CHAIN_ID, vec![rich]));
        change(&mut config);
        let devnet = Devnet::start(config).unwrap();
        let endpoints = Endpoints::new(&[devnet.rpc_url()], ClientOptions::default()).unwrap();
        Self {
            devnet,
            chain: Chain::new(endpoints),
            alice,
            bob,
            _deadline: deadline,
        }
    }

    pub(crate) async fn balance(&self, key: &LocalKey) -> u128 {
        self.chain.balance(&address(key), "stake").await.unwrap().value
    }
}

pub(crate) fn address(key: &LocalKey) -> String {
    key.address("wasm").unwrap()
}

pub(crate) fn options() -> SendOptions {
    SendOptions {
        chain_id: CHAIN_ID.to_owned(),
        prefix: "wasm".to_owned(),
        gas: Gas::Auto(Adjustment::default()),
        pay: Pay::Price("0.01stake".parse().unwrap()),
        memo: String::new(),
        deadline: Duration::from_secs(30),
    }
}
