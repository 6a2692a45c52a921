//! Transactions through the RPC: CheckTx, blocks, results, events.

mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::cosmos::auth::v1beta1::{BaseAccount, QueryAccountRequest, QueryAccountResponse};
use cosmrs::proto::cosmos::bank::v1beta1::{QueryBalanceRequest, QueryBalanceResponse};
use cosmrs::proto::cosmos::base::abci::v1beta1::TxMsgData;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgExecuteContractResponse, QuerySmartContractStateRequest, QuerySmartContractStateResponse,
};
use cosmrs::proto::traits::Message;
use hpc_devnet::{GasPrice, Numbering};
use serde_json::{Value, json};
use support::rpc::{attribute, hash};
use support::wallet::Wallet;
use support::{CHAIN_ID, FAR_NUMBER, Scene, config, genesis, scene, scene_with};

fn balance(scene: &Scene, address: &str) -> u128 {
    let request = QueryBalanceRequest {
        address: address.to_string(),
        denom: "stake".to_string(),
    };
    let answer: QueryBalanceResponse = scene.rpc.query("/cosmos.bank.v1beta1.Query/Balance", &request);
    answer.balance.unwrap().amount.parse().unwrap()
}

fn account(scene: &Scene, address: &str) -> BaseAccount {
    let request = QueryAccountRequest {
        address: address.to_string(),
    };
    let answer: QueryAccountResponse = scene.rpc.query("/cosmos.auth.v1beta1.Query/Account", &request);
    let any = answer.account.unwrap();
    assert_eq!(any.type_url, "/cosmos.auth.v1beta1.BaseAccount");
    BaseAccount::decode(any.value.as_slice()).unwrap()
}

fn count(scene: &Scene, contract: &str) -> u64 {
    let request = QuerySmartContractStateRequest {
        address: contract.to_string(),
        query_data: br#"{"get":{}}"#.to_vec(),
    };
    let answer: QuerySmartContractStateResponse = scene
        .rpc
        .query("/cosmwasm.wasm.v1.Query/SmartContractState", &request);
    serde_json::from_slice::<Value>(&answer.data).unwrap()["count"]
        .as_u64()
        .unwrap()
}

/// Type and attributes of each event, in order.
fn shape(result: &Value) -> Vec<(String, Vec<(String, String)>)> {
    let text = |v: &Value| v.as_str().unwrap().to_string();
    let events = result["events"].as_array().unwrap();
    events
        .iter()
        .map(|event| {
            let attributes = event["attributes"].as_array().unwrap();
            assert!(attributes.iter().all(|a| a["index"] == true));
            (
                text(&event["type"]),
                attributes
                    .iter()
                    .map(|a| (text(&a["key"]), text(&a["value"])))
                    .collect(),
            )
        })
        .collect()
}

fn expected(events: &[(&str, &[(&str, &str)])]) -> Vec<(String, Vec<(String, String)>)> {
    events
        .iter()
        .map(|(kind, attributes)| {
            let attributes = attributes
                .iter()
                .map(|(k, v)| ((*k).to_string(), (*v).to_string()))
                .collect();
            ((*kind).to_string(), attributes)
        })
        .collect()
}

fn check(scene: &Scene, tx: &[u8], code: u64, text: &str) {
    let answer = scene.rpc.broadcast(tx);
    assert_eq!(answer["code"], code, "{answer}");
    assert!(answer["log"].as_str().unwrap().contains(text), "{answer}");
    assert_eq!(answer["hash"], hash(tx));
    assert_eq!(answer["codespace"], if code == 0 { "" } else { "sdk" });
    assert_eq!(scene.chain.mempool_len(), 0);
}

#[test]
fn coins_move_fees_are_paid_and_the_sequence_rises() {
    let scene = scene();
    let mut alice = Wallet::new(1);
    alice.fee = Some((5_000, "stake"));
    let fresh = Wallet::new(9);
    let result = scene.commit(&alice.sign(&[alice.send(&fresh.address(), &[(250, "stake")])]));
    assert_eq!(result["code"], 0, "{result}");
    assert_eq!(balance(&scene, &fresh.address()), 250);
    assert_eq!(balance(&scene, &alice.address()), 1_000_000_000 - 5_250);
    assert_eq!(
        balance(&scene, "wasm17xpfvakm2amg962yls6f84z3kell8c5l69j4zk"),
        5_000
    );
    let account_of_alice = account(&scene, &alice.address());
    assert_eq!(
        (account_of_alice.account_number, account_of_alice.sequence),
        (0, 1)
    );
    assert!(account_of_alice.pub_key.is_some());
    assert_eq!(account(&scene, &fresh.address()).account_number, 2);
}

#[test]
fn a_contract_is_instantiated_executed_and_queried_with_wasmds_address_and_events() {
    let scene = scene();
    let mut alice = Wallet::new(1);
    let contract = scene.instantiate(&mut alice);
    assert_eq!(
        contract,
        "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d"
    );
    assert_eq!(count(&scene, &contract), 7);

    alice.fee = Some((77, "stake"));
    let tx = alice.sign(&[alice.execute(&contract, r#"{"increment":{"by":5}}"#, &[(12, "stake")])]);
    let result = scene.commit(&tx);
    assert_eq!(count(&scene, &contract), 12);
    let me = alice.address();
    let collector = "wasm17xpfvakm2amg962yls6f84z3kell8c5l69j4zk";
    let raw = cosmrs::proto::cosmos::tx::v1beta1::TxRaw::decode(tx.as_slice()).unwrap();
    assert_eq!(
        shape(&result),
        expected(&[
            ("coin_spent", &[("spender", &me), ("amount", "77stake")]),
            ("coin_received", &[("receiver", collector), ("amount", "77stake")]),
            (
                "transfer",
                &[("recipient", collector), ("sender", &me), ("amount", "77stake")]
            ),
            ("message", &[("sender", &me)]),
            ("tx", &[("fee", "77stake"), ("fee_payer", &me)]),
            ("tx", &[("acc_seq", &format!("{me}/1"))]),
            ("tx", &[("signature", &STANDARD.encode(&raw.signatures[0]))]),
            (
                "message",
                &[
                    ("action", "/cosmwasm.wasm.v1.MsgExecuteContract"),
                    ("sender", &me),
                    ("module", "wasm"),
                    ("msg_index", "0"),
                ]
            ),
            (
                "coin_spent",
                &[("spender", &me), ("amount", "12stake"), ("msg_index", "0")]
            ),
            (
                "coin_received",
                &[("receiver", &contract), ("amount", "12stake"), ("msg_index", "0")]
            ),
            (
                "transfer",
                &[
                    ("recipient", &contract),
                    ("sender", &me),
                    ("amount", "12stake"),
                    ("msg_index", "0")
                ]
            ),
            ("execute", &[("_contract_address", &contract), ("msg_index", "0")]),
            (
                "wasm",
                &[
                    ("_contract_address", &contract),
                    ("count", "12"),
                    ("funds", "12stake"),
                    ("msg_index", "0")
                ]
            ),
        ])
    );
    let data = TxMsgData::decode(
        STANDARD
            .decode(result["data"].as_str().unwrap())
            .unwrap()
            .as_slice(),
    )
    .unwrap();
    assert_eq!(data.msg_responses.len(), 1);
    assert_eq!(
        data.msg_responses[0].type_url,
        "/cosmwasm.wasm.v1.MsgExecuteContractResponse"
    );
    let response = MsgExecuteContractResponse::decode(data.msg_responses[0].value.as_slice()).unwrap();
    assert_eq!(response.data, br#"{"count":12}"#);
    assert_eq!(result["gas_wanted"], "400000");
    let used: u64 = result["gas_used"].as_str().unwrap().parse().unwrap();
    assert!((100_000..250_000).contains(&used), "{used}");
}
