//! What the tests of the RPC share: a contract, a wallet, a raw JSON-RPC client, a scene with all of them.
#![allow(dead_code, unreachable_pub, reason = "every test program uses its own part")]

pub(crate) mod counter;
#[path = "../../../../tests/src/deadline.rs"]
pub(crate) mod deadline;
pub(crate) mod rpc;
pub(crate) mod wallet;

use cosmrs::proto::cosmos::auth::v1beta1::{BaseAccount, QueryAccountRequest, QueryAccountResponse};
use cosmrs::proto::cosmos::bank::v1beta1::{QueryBalanceRequest, QueryBalanceResponse};
use cosmrs::proto::cosmwasm::wasm::v1::{QuerySmartContractStateRequest, QuerySmartContractStateResponse};
use cosmrs::proto::traits::Message;
use hpc_devnet::{Config, Devnet, Genesis, GenesisAccount, Handle};
use serde_json::Value;

use self::deadline::Deadline;
use self::rpc::{Rpc, hash};
use self::wallet::Wallet;

pub(crate) const CHAIN_ID: &str = "devnet-test-1";
/// An account number that SDK 0.54 once drew: it needs all 64 bits.
pub(crate) const FAR_NUMBER: u64 = 16_248_300_979_261_217_383;
/// The fee collector's address.
pub(crate) const COLLECTOR: &str = "wasm17xpfvakm2amg962yls6f84z3kell8c5l69j4zk";

/// A chain on demand with the counter contract as code id 1, and three rich accounts: numbers 0, 1 and
/// [`FAR_NUMBER`].
pub(crate) struct Scene {
    pub(crate) chain: Handle,
    pub(crate) rpc: Rpc,
    pub(crate) alice: Wallet,
    pub(crate) bob: Wallet,
    pub(crate) far: Wallet,
    // The last: letting the others go may hang too.
    _deadline: Deadline,
}

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
    scene_with(|_| {})
}

pub(crate) fn scene_with(change: impl FnOnce(&mut Config)) -> Scene {
    let deadline = Deadline::of_test();
    let mut config = config();
    change(&mut config);
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
        _deadline: deadline,
    }
}

impl Scene {
    /// Broadcasts, expects acceptance, makes a block, returns the transaction's result.
    pub(crate) fn commit(&self, tx: &[u8]) -> Value {
        self.accept(tx);
        self.chain.produce_block().unwrap();
        self.rpc.tx(tx)["tx_result"].clone()
    }

    /// Broadcasts and expects acceptance.
    pub(crate) fn accept(&self, tx: &[u8]) {
        let answer = self.rpc.broadcast(tx);
        assert_eq!(answer["code"], 0, "{answer}");
        assert_eq!(answer["hash"], hash(tx));
    }

    /// Broadcasts and expects CheckTx to refuse with that code of the SDK and exactly that text.
    pub(crate) fn refuse(&self, tx: &[u8], code: u64, log: &str) {
        let waiting = self.chain.mempool_len();
        let answer = self.rpc.broadcast(tx);
        assert_eq!(
            (&answer["code"], answer["log"].as_str()),
            (&code.into(), Some(log)),
            "{answer}"
        );
        assert_eq!(answer["codespace"], "sdk");
        assert_eq!(answer["hash"], hash(tx));
        assert_eq!(self.chain.mempool_len(), waiting);
    }

    /// Instantiates the counter with 7 by Alice and returns its address.
    pub(crate) fn instantiate(&mut self) -> String {
        let message = self.alice.instantiate(1, r#"{"count":7}"#, "counter", &[]);
        let tx = self.alice.sign_next(&[message]);
        let result = self.commit(&tx);
        assert_eq!(result["code"], 0, "{result}");
        rpc::attribute(&result, "instantiate", "_contract_address").unwrap()
    }

    pub(crate) fn balance(&self, address: &str) -> u128 {
        let request = QueryBalanceRequest {
            address: address.to_string(),
            denom: "stake".to_string(),
        };
        let answer: QueryBalanceResponse = self.rpc.query("/cosmos.bank.v1beta1.Query/Balance", &request);
        answer.balance.unwrap().amount.parse().unwrap()
    }

    pub(crate) fn account(&self, address: &str) -> BaseAccount {
        let request = QueryAccountRequest {
            address: address.to_string(),
        };
        let answer: QueryAccountResponse = self.rpc.query("/cosmos.auth.v1beta1.Query/Account", &request);
        let any = answer.account.unwrap();
        assert_eq!(any.type_url, "/cosmos.auth.v1beta1.BaseAccount");
        BaseAccount::decode(any.value.as_slice()).unwrap()
    }

    /// The `response` of a smart query.
    pub(crate) fn smart_raw(&self, contract: &str, query: &str) -> Value {
        let request = QuerySmartContractStateRequest {
            address: contract.to_string(),
            query_data: query.as_bytes().to_vec(),
        };
        self.rpc
            .abci("/cosmwasm.wasm.v1.Query/SmartContractState", &request)
    }

    pub(crate) fn smart(&self, contract: &str, query: &str) -> Value {
        let request = QuerySmartContractStateRequest {
            address: contract.to_string(),
            query_data: query.as_bytes().to_vec(),
        };
        let answer: QuerySmartContractStateResponse = self
            .rpc
            .query("/cosmwasm.wasm.v1.Query/SmartContractState", &request);
        serde_json::from_slice(&answer.data).unwrap()
    }

    pub(crate) fn count(&self, contract: &str) -> u64 {
        self.smart(contract, r#"{"get":{}}"#)["count"].as_u64().unwrap()
    }
}
