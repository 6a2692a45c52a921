//! Transactions that are accepted: their effect, result, events and data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::cosmos::base::abci::v1beta1::TxMsgData;
use cosmrs::proto::cosmos::tx::v1beta1::TxRaw;
use cosmrs::proto::cosmwasm::wasm::v1::MsgExecuteContractResponse;
use cosmrs::proto::traits::Message;
use hpc_devnet::{GasPrice, Numbering};
use serde_json::Value;

use crate::support::wallet::Wallet;
use crate::support::{COLLECTOR, FAR_NUMBER, scene, scene_with};

type Shape = Vec<(String, Vec<(String, String)>)>;

/// Type and attributes of each event, in order; all must be indexed.
fn shape(result: &Value) -> Shape {
    let text = |v: &Value| v.as_str().unwrap().to_string();
    let attributes = |event: &Value| {
        let attributes = event["attributes"].as_array().unwrap();
        assert!(attributes.iter().all(|a| a["index"] == true));
        attributes
            .iter()
            .map(|a| (text(&a["key"]), text(&a["value"])))
            .collect()
    };
    result["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (text(&event["type"]), attributes(event)))
        .collect()
}

fn expected(events: &[(&str, &[(&str, &str)])]) -> Shape {
    let owned = |(k, v): &(&str, &str)| ((*k).to_string(), (*v).to_string());
    events
        .iter()
        .map(|(kind, list)| ((*kind).to_string(), list.iter().map(owned).collect()))
        .collect()
}

fn data(result: &Value) -> TxMsgData {
    TxMsgData::decode(
        STANDARD
            .decode(result["data"].as_str().unwrap())
            .unwrap()
            .as_slice(),
    )
    .unwrap()
}

#[test]
fn coins_move_fees_are_paid_and_the_sequence_rises() {
    let mut scene = scene();
    scene.alice.fee = Some((5_000, "stake"));
    let fresh = Wallet::new(9);
    let result = scene.commit(
        &scene
            .alice
            .sign(&[scene.alice.send(&fresh.address(), &[(250, "stake")])]),
    );
    assert_eq!(result["code"], 0, "{result}");
    assert_eq!(scene.balance(&fresh.address()), 250);
    assert_eq!(scene.balance(&scene.alice.address()), 1_000_000_000 - 5_250);
    assert_eq!(scene.balance(COLLECTOR), 5_000);
    let alice = scene.account(&scene.alice.address());
    assert_eq!((alice.account_number, alice.sequence), (0, 1));
    assert_eq!(alice.pub_key.unwrap().type_url, "/cosmos.crypto.secp256k1.PubKey");
    assert_eq!(scene.account(&fresh.address()).account_number, 2);
    assert_eq!(
        data(&result).msg_responses[0].type_url,
        "/cosmos.bank.v1beta1.MsgSendResponse"
    );
}

#[test]
fn events_and_data_of_an_execution_are_those_of_wasmd() {
    let mut scene = scene();
    let contract = scene.instantiate();
    assert_eq!(
        contract,
        "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d"
    );
    scene.alice.fee = Some((77, "stake"));
    let execute = scene
        .alice
        .execute(&contract, r#"{"increment":{"by":5}}"#, &[(12, "stake")]);
    let tx = scene.alice.sign(&[execute]);
    let result = scene.commit(&tx);
    assert_eq!(scene.count(&contract), 12);
    let me = scene.alice.address();
    let signature = STANDARD.encode(&TxRaw::decode(tx.as_slice()).unwrap().signatures[0]);
    let sequence = format!("{me}/1");
    assert_eq!(
        shape(&result),
        expected(&[
            ("coin_spent", &[("spender", &me), ("amount", "77stake")]),
            ("coin_received", &[("receiver", COLLECTOR), ("amount", "77stake")]),
            (
                "transfer",
                &[("recipient", COLLECTOR), ("sender", &me), ("amount", "77stake")]
            ),
            ("message", &[("sender", &me)]),
            ("tx", &[("fee", "77stake"), ("fee_payer", &me)]),
            ("tx", &[("acc_seq", &sequence)]),
            ("tx", &[("signature", &signature)]),
            (
                "message",
                &[
                    ("action", "/cosmwasm.wasm.v1.MsgExecuteContract"),
                    ("sender", &me),
                    ("module", "wasm"),
                    ("msg_index", "0")
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
    let data = data(&result);
    assert_eq!(data.msg_responses.len(), 1);
    assert_eq!(
        data.msg_responses[0].type_url,
        "/cosmwasm.wasm.v1.MsgExecuteContractResponse"
    );
    let response = MsgExecuteContractResponse::decode(data.msg_responses[0].value.as_slice()).unwrap();
    assert_eq!(response.data, br#"{"count":12}"#);
    assert_eq!(result["gas_wanted"], "400000");
    let used: u64 = result["gas_used"].as_str().unwrap().parse().unwrap();
    assert!((100_000..200_000).contains(&used), "{used}");
}

#[test]
fn without_a_fee_there_are_no_transfer_events_and_without_attributes_no_wasm_event() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let result = scene.commit(
        &scene.alice.sign(&[
            scene.alice.execute(&contract, r#"{"quiet":{}}"#, &[]),
            scene
                .alice
                .execute(&contract, r#"{"announce":{"text":"hi"}}"#, &[]),
        ]),
    );
    let kinds: Vec<String> = shape(&result).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [
            "tx",
            "tx",
            "tx",
            "message",
            "execute",
            "message",
            "execute",
            "wasm-announced"
        ]
    );
    let last = shape(&result).pop().unwrap().1;
    assert_eq!(
        last.first().unwrap(),
        &("_contract_address".to_string(), contract)
    );
    assert_eq!(last.get(1).unwrap(), &("text".to_string(), "hi".to_string()));
    assert_eq!(last.get(2).unwrap(), &("msg_index".to_string(), "1".to_string()));
    assert_eq!(data(&result).msg_responses.len(), 2);
    assert!(data(&result).msg_responses[0].value.is_empty());
}

#[test]
fn an_account_number_of_all_64_bits_is_signed_and_answered_whole() {
    let scene = scene();
    assert_eq!(scene.account(&scene.far.address()).account_number, FAR_NUMBER);
    let result = scene.commit(&scene.far.sign(&[scene.far.send(NOBODY, &[(1, "stake")])]));
    assert_eq!(result["code"], 0, "{result}");
}

/// An address that nobody has the key of.
const NOBODY: &str = "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sq29c3m";

#[test]
fn accounts_made_later_are_numbered_as_sdk_0_54_does_if_asked_to() {
    let scene = scene_with(|config| config.genesis.account_numbers = Numbering::Sdk54);
    assert_eq!(scene.account(&scene.bob.address()).account_number, 1);
    let mut fresh = Wallet::new(9);
    scene.commit(
        &scene
            .alice
            .sign(&[scene.alice.send(&fresh.address(), &[(1_000, "stake")])]),
    );
    fresh.number = scene.account(&fresh.address()).account_number;
    assert!(fresh.number >= 1 << 63, "{}", fresh.number);
    let result = scene.commit(&fresh.sign(&[fresh.send(&scene.bob.address(), &[(1, "stake")])]));
    assert_eq!(result["code"], 0, "{result}");
}

#[test]
fn several_transactions_of_one_account_fit_into_one_block() {
    let scene = scene();
    let bob = scene.bob.address();
    for _ in 0..5 {
        let message = scene.alice.send(&bob, &[(1, "stake")]);
        let tx = scene.alice.sign_next(&[message]);
        scene.accept(&tx);
    }
    assert_eq!(scene.chain.mempool_len(), 5);
    // The check state runs ahead of the committed one, which queries show.
    assert_eq!(scene.account(&scene.alice.address()).sequence, 0);
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.account(&scene.alice.address()).sequence, 5);
    assert_eq!(scene.balance(&bob), 1_000_000_005);
    assert_eq!(scene.chain.mempool_len(), 0);
}

#[test]
fn messages_of_a_transaction_take_effect_together_or_not_at_all() {
    let mut scene = scene();
    let contract = scene.instantiate();
    scene.alice.fee = Some((10, "stake"));
    let before = scene.balance(&scene.alice.address());
    let tx = scene.alice.sign(&[
        scene
            .alice
            .execute(&contract, r#"{"increment":{"by":5}}"#, &[(3, "stake")]),
        scene.alice.execute(&contract, r#"{"fail":{}}"#, &[]),
    ]);
    let result = scene.commit(&tx);
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&5.into(), &"wasm".into())
    );
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 1: kind: Other, error: refused on purpose: execute wasm contract failed"
    );
    assert_eq!(result["data"], Value::Null);
    assert_eq!(scene.count(&contract), 7);
    // Fee and sequence stay, and so do the events of the ante handler alone.
    assert_eq!(scene.balance(&scene.alice.address()), before - 10);
    assert_eq!(scene.account(&scene.alice.address()).sequence, 2);
    assert_eq!(shape(&result).len(), 7);
}

#[test]
fn a_fee_of_exactly_the_minimum_is_enough() {
    let mut scene = scene_with(|config| config.min_gas_price = GasPrice::parse("0.025stake").unwrap());
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        13,
        "insufficient fees; got:  required: 10000stake: insufficient fee",
    );
    scene.alice.fee = Some((9_999, "stake"));
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        13,
        "insufficient fees; got: 9999stake required: 10000stake: insufficient fee",
    );
    scene.alice.fee = Some((10_000, "stake"));
    scene.commit(&scene.alice.sign(&[message]));
}
