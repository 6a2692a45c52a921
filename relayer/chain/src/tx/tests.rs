//! Byte for byte against transactions that CosmJS signed (`fixtures/README.md`).

use std::num::NonZeroU64;

use serde_json::{Value, json};

use super::*;
use crate::keys::{DEFAULT_PATH, Mnemonic};
use crate::msg;

const CONTRACT: &str = "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d";

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../fixtures/cosmjs-0.39.json")).unwrap()
}

fn key(f: &Value) -> LocalKey {
    let words = Mnemonic::parse(f["mnemonic"].as_str().unwrap()).unwrap();
    LocalKey::from_mnemonic(&words, DEFAULT_PATH).unwrap()
}

fn message(name: &str, f: &Value) -> Any {
    let from = f["address"].as_str().unwrap();
    if name == "send" {
        let coins = ["10stake".parse().unwrap(), "1atom".parse().unwrap()];
        return msg::send(from, f["address24"].as_str().unwrap(), &coins);
    }
    let execute = json!({ "activate_cluster": { "cluster_id": "hpc-cluster-1" } });
    msg::execute(from, CONTRACT, &execute, &[]).unwrap()
}

fn unsigned(name: &str, tx: &Value, f: &Value) -> Unsigned {
    let text = |field: &str| tx[field].as_str().unwrap();
    Unsigned {
        messages: vec![message(name, f)],
        memo: text("memo").to_owned(),
        timeout_height: NonZeroU64::new(text("timeout_height").parse().unwrap()).unwrap(),
        fee: Fee {
            amount: tx["fee"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c.as_str().unwrap().parse().unwrap())
                .collect(),
            gas_limit: text("gas").parse().unwrap(),
            granter: None,
        },
    }
}

#[test]
fn signed_transactions_are_those_of_cosmjs_byte_for_byte() {
    let f = fixture();
    let key = key(&f);
    for tx in f["txs"].as_array().unwrap() {
        let text = |field: &str| tx[field].as_str().unwrap();
        let signer = SignerData {
            chain_id: text("chain_id"),
            account_number: text("account_number").parse().unwrap(),
            sequence: text("sequence").parse().unwrap(),
        };
        let signed = sign(&key, signer, &unsigned(text("name"), tx, &f)).unwrap();
        assert_eq!(hex::encode(&signed.bytes), text("tx_hex"), "{}", text("name"));
        assert_eq!(signed.hash.to_string(), text("hash"));
    }
}

#[test]
fn a_transaction_says_its_gas_limit() {
    let f = fixture();
    for tx in f["txs"].as_array().unwrap() {
        let bytes = hex::decode(tx["tx_hex"].as_str().unwrap()).unwrap();
        assert_eq!(
            gas_limit(&bytes).unwrap().to_string(),
            tx["gas"].as_str().unwrap()
        );
    }
    assert_eq!(gas_limit(b"none"), None);
}

#[test]
fn an_adr_036_signature_is_that_of_cosmjs() {
    use base64::Engine as _;
    let f = fixture();
    let signature = key(&f)
        .sign_adr036("wasm", f["adr036"]["data"].as_str().unwrap().as_bytes())
        .unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(signature);
    assert_eq!(text, f["adr036"]["signature"].as_str().unwrap());
}

#[test]
fn a_simulation_differs_from_the_transaction_by_its_signature_alone() {
    let f = fixture();
    let tx = &f["txs"][0];
    let bytes = simulation_bytes(&key(&f), 3, &unsigned("execute", tx, &f));
    let simulated = TxRaw::decode(bytes.as_slice()).unwrap();
    let signed = TxRaw::decode(hex::decode(tx["tx_hex"].as_str().unwrap()).unwrap().as_slice()).unwrap();
    assert_eq!(simulated.body_bytes, signed.body_bytes);
    assert_eq!(simulated.auth_info_bytes, signed.auth_info_bytes);
    assert_eq!(simulated.signatures, [Vec::<u8>::new()]);
}
