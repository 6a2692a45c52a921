//! What the tests of the RPC share: a contract, a wallet, a raw JSON-RPC client.
#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod counter;
pub(crate) mod rpc;
pub(crate) mod wallet;

use hpc_devnet::{Config, Devnet, Genesis, GenesisAccount, Handle};

use self::rpc::Rpc;
use self::wallet::Wallet;

pub(crate) const CHAIN_ID: &str = "devnet-test-1";

/// A chain on demand with the counter contract as code id 1, two rich accounts and one of a large number.
pub(crate) struct Scene {
    pub chain: Handle,
    pub rpc: Rpc,
    pub alice: Wallet,
    pub bob: Wallet,
    pub far: Wallet,
}

/// The account number that SDK 0.54 once drew: it needs all 64 bits.
pub(crate) const FAR_NUMBER: u64 = 16_248_300_979_261_217_383;

pub(crate) fn genesis() -> Genesis {
    let account = |wallet: &Wallet| GenesisAccount::new(wallet.address(), "1000000000stake,500token");
    let mut far = account(&Wallet::new(3));
    far.number = Some(FAR_NUMBER);
    Genesis::new(
        CHAIN_ID,
        vec![account(&Wallet::new(1)), account(&Wallet::new(2)), far],
    )
}

pub(crate) fn config() -> Config {
    let mut config = Config::ephemeral(genesis());
    config.codes = vec![counter::contract()];
    config
}

pub(crate) fn scene() -> Scene {
    scene_with(config())
}

pub(crate) fn scene_with(config: Config) -> Scene {
    let chain = Devnet::start(config).unwrap();
    let rpc = Rpc::new(chain.rpc_url());
    let (alice, mut bob, mut far) = (Wallet::new(1), Wallet::new(2), Wallet::new(3));
    bob.number = 1;
    far.number = FAR_NUMBER;
    Scene {
        chain,
        rpc,
        alice,
        bob,
        far,
    }
}

impl Scene {
    /// Broadcasts, expects acceptance, makes a block, returns the transaction's result.
    pub(crate) fn commit(&self, tx: &[u8]) -> serde_json::Value {
        let answer = self.rpc.broadcast(tx);
        assert_eq!(answer["code"], 0, "{answer}");
        self.chain.produce_block().unwrap();
        self.rpc.tx(tx)["tx_result"].clone()
    }

    /// Instantiates the counter and returns its address.
    pub(crate) fn instantiate(&self, wallet: &mut Wallet) -> String {
        let tx = wallet.sign(&[wallet.instantiate(1, r#"{"count":7}"#, "counter", &[])]);
        wallet.sequence += 1;
        let result = self.commit(&tx);
        assert_eq!(result["code"], 0, "{result}");
        rpc::attribute(&result, "instantiate", "_contract_address").unwrap()
    }
}
