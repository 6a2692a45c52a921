//! `abci_query`: every path, and every way to ask wrongly.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::cosmos::auth::v1beta1::{QueryAccountRequest, QueryParamsRequest, QueryParamsResponse};
use cosmrs::proto::cosmos::bank::v1beta1::{
    QueryAllBalancesRequest, QueryAllBalancesResponse, QueryBalanceRequest,
};
use cosmrs::proto::cosmos::base::query::v1beta1::PageRequest;
use cosmrs::proto::cosmos::tx::v1beta1::{SimulateRequest, SimulateResponse, TxRaw};
use cosmrs::proto::cosmwasm::wasm::v1::{
    QueryAllContractStateRequest, QueryAllContractStateResponse, QueryCodesRequest, QueryCodesResponse,
    QueryContractInfoRequest, QueryContractInfoResponse, QueryRawContractStateRequest,
    QueryRawContractStateResponse,
};
use cosmrs::proto::traits::Message;
use serde_json::{Value, json};

use crate::support::scene;

const NOWHERE: &str = "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sq29c3m";

fn refused(response: &Value, code: u64, log: &str) {
    assert_eq!(
        (&response["code"], response["log"].as_str()),
        (&code.into(), Some(log)),
        "{response}"
    );
    assert_eq!(
        (&response["codespace"], &response["value"]),
        (&"sdk".into(), &Value::Null)
    );
}

#[allow(deprecated, reason = "the generated type still has the old field")]
fn simulate(tx_bytes: Vec<u8>) -> SimulateRequest {
    SimulateRequest { tx: None, tx_bytes }
}

#[test]
fn data_is_hex_of_either_case_and_answers_carry_the_height_of_the_state() {
    let scene = scene();
    scene.chain.produce_block().unwrap();
    let request = QueryBalanceRequest {
        address: scene.alice.address(),
        denom: "stake".to_string(),
    };
    let path = "/cosmos.bank.v1beta1.Query/Balance";
    let lower = hex::encode(request.encode_to_vec());
    let cosmjs = scene.rpc.call(
        "abci_query",
        &json!({"path": path, "data": lower, "prove": false}),
    );
    let upper = lower.to_uppercase();
    let wasmd = scene.rpc.call(
        "abci_query",
        &json!({"path": path, "data": upper, "prove": false, "height": "0"}),
    );
    assert_eq!(cosmjs, wasmd);
    let response = &cosmjs["response"];
    assert_eq!(response["height"], "2");
    assert_eq!(
        (&response["key"], &response["proofOps"], &response["index"]),
        (&Value::Null, &Value::Null, &json!("0"))
    );
    // The newest height may be named; another one is an error, not an answer from another height.
    let at = |height: &str| {
        scene.rpc.call(
            "abci_query",
            &json!({"path": path, "data": lower, "height": height}),
        )
    };
    assert_eq!(at("2")["response"], *response);
    refused(
        &at("1")["response"],
        18,
        "failed to load state at height 1; the embedded chain keeps the newest state only (latest height: 2): invalid request",
    );
    refused(
        &at("3")["response"],
        26,
        "cannot query with height in the future; please provide a valid height: invalid height",
    );
    refused(
        &at("-1")["response"],
        18,
        "cannot query with height < 0; please provide a valid height: invalid request",
    );
    assert_eq!(
        scene
            .rpc
            .error("abci_query", &json!({"path": path, "data": "0x00"}))
            .0,
        -32602
    );
}

#[test]
fn unknown_paths_and_accounts_have_the_sdks_codes_and_texts() {
    let scene = scene();
    for path in ["/cosmos.bank.v1beta1.Query/Params", "/store/bank/key", "/nope"] {
        let response = scene.rpc.call("abci_query", &json!({"path": path, "data": ""}));
        refused(&response["response"], 6, "unknown query path: unknown request");
        assert_eq!(response["response"]["height"], "0");
    }
    let account = |address: &str| {
        let request = QueryAccountRequest {
            address: address.to_string(),
        };
        scene.rpc.abci("/cosmos.auth.v1beta1.Query/Account", &request)
    };
    refused(
        &account(NOWHERE),
        22,
        &format!("rpc error: code = NotFound desc = account {NOWHERE} not found: key not found"),
    );
    assert_eq!(account(NOWHERE)["height"], "1");
    refused(
        &account(""),
        18,
        "rpc error: code = InvalidArgument desc = Address cannot be empty: invalid request",
    );
    assert_eq!(account("wasm1qq")["code"], 18);
    let broken = scene.rpc.call(
        "abci_query",
        &json!({"path": "/cosmos.auth.v1beta1.Query/Account", "data": "ff"}),
    );
    assert_eq!(broken["response"]["code"], 18);
}

#[test]
fn balances_are_sorted_and_paged() {
    let scene = scene();
    let ask = |pagination| {
        let request = QueryAllBalancesRequest {
            address: scene.alice.address(),
            pagination,
            ..QueryAllBalancesRequest::default()
        };
        scene
            .rpc
            .query::<QueryAllBalancesResponse>("/cosmos.bank.v1beta1.Query/AllBalances", &request)
    };
    let all = ask(None);
    let denoms: Vec<&str> = all.balances.iter().map(|c| c.denom.as_str()).collect();
    assert_eq!(denoms, ["stake", "token"]);
    let first = ask(Some(PageRequest {
        limit: 1,
        count_total: true,
        ..PageRequest::default()
    }));
    assert_eq!(
        (first.balances.len(), first.pagination.as_ref().unwrap().total),
        (1, 2)
    );
    let second = ask(Some(PageRequest {
        key: first.pagination.unwrap().next_key,
        ..PageRequest::default()
    }));
    assert_eq!(second.balances[0].denom, "token");
    let request = QueryBalanceRequest {
        address: scene.alice.address(),
        denom: "!".to_string(),
    };
    refused(
        &scene.rpc.abci("/cosmos.bank.v1beta1.Query/Balance", &request),
        18,
        "rpc error: code = InvalidArgument desc = invalid denom: !: invalid request",
    );
}

#[test]
fn parameters_of_accounts_and_consensus_are_answered() {
    let scene = scene();
    let answer: QueryParamsResponse = scene
        .rpc
        .query("/cosmos.auth.v1beta1.Query/Params", &QueryParamsRequest {});
    let params = answer.params.unwrap();
    assert_eq!(
        (params.max_memo_characters, params.tx_size_cost_per_byte),
        (256, 10)
    );
    let consensus = scene.rpc.call(
        "abci_query",
        &json!({"path": "/cosmos.consensus.v1.Query/Params", "data": ""}),
    );
    assert_eq!(consensus["response"]["code"], 0);
    assert!(
        !STANDARD
            .decode(consensus["response"]["value"].as_str().unwrap())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_simulation_needs_no_signature_and_its_gas_is_enough() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let message = scene.alice.execute(&contract, r#"{"increment":{"by":2}}"#, &[]);
    scene.alice.gas = 0;
    let mut raw = TxRaw::decode(scene.alice.sign(std::slice::from_ref(&message)).as_slice()).unwrap();
    raw.signatures[0].clear();
    let path = "/cosmos.tx.v1beta1.Service/Simulate";
    let answer: SimulateResponse = scene.rpc.query(path, &simulate(raw.encode_to_vec()));
    let gas = answer.gas_info.unwrap();
    assert_eq!(gas.gas_wanted, u64::MAX);
    let result = answer.result.unwrap();
    assert_eq!(
        result.msg_responses[0].type_url,
        "/cosmwasm.wasm.v1.MsgExecuteContractResponse"
    );
    assert!(result.events.iter().any(|event| event.r#type == "wasm"));
    // Nothing happened, and the estimate with a little room carries the transaction.
    assert_eq!(scene.count(&contract), 7);
    scene.alice.gas = gas.gas_used + 500;
    assert_eq!(scene.commit(&scene.alice.sign_next(&[message]))["code"], 0);

    let failing = scene.alice.execute(&contract, r#"{"fail":{}}"#, &[]);
    let response = scene.rpc.abci(path, &simulate(scene.alice.sign(&[failing])));
    refused(
        &response,
        6,
        "failed to execute message; message index: 0: kind: Other, error: refused on purpose: execute wasm contract failed: unknown request",
    );
    scene.alice.sequence.set(9);
    let early = scene.alice.execute(&contract, r#"{"quiet":{}}"#, &[]);
    refused(
        &scene.rpc.abci(path, &simulate(scene.alice.sign(&[early]))),
        6,
        "account sequence mismatch, expected 2, got 9: incorrect account sequence: unknown request",
    );
    refused(
        &scene.rpc.abci(path, &simulate(Vec::new())),
        18,
        "rpc error: code = InvalidArgument desc = empty txBytes is not allowed: invalid request",
    );
}

#[test]
fn errors_of_smart_queries_are_code_6_of_the_sdk() {
    let mut scene = scene();
    let contract = scene.instantiate();
    refused(
        &scene.smart_raw(&contract, r#"{"fail":{}}"#),
        6,
        "kind: Other, error: no answer on purpose: query wasm contract failed: unknown request",
    );
    refused(
        &scene.smart_raw(&contract, r#"{"panic":{}}"#),
        6,
        "Aborted: panicked: on purpose: wasmvm error: unknown request",
    );
    assert_eq!(scene.smart_raw(&contract, r#"{"nope":{}}"#)["code"], 6);
    // Other modules give contracts no answers here; the contract learns that.
    let balance = scene.smart_raw(&contract, r#"{"balance":{}}"#);
    assert_eq!(balance["code"], 6);
    assert!(
        balance["log"].as_str().unwrap().contains("on the embedded chain"),
        "{balance}"
    );
    refused(
        &scene.smart_raw(&contract, "no json"),
        18,
        "rpc error: code = InvalidArgument desc = invalid query data: invalid request",
    );
    refused(
        &scene.smart_raw(NOWHERE, "{}"),
        6,
        &format!("address {NOWHERE}: no such contract: unknown request"),
    );
}

#[test]
fn storage_contract_and_codes_are_read_as_on_wasmd() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let message = scene.alice.execute(&contract, r#"{"increment":{"by":2}}"#, &[]);
    scene.commit(&scene.alice.sign_next(&[message]));

    let raw = |key: &str| {
        let request = QueryRawContractStateRequest {
            address: contract.clone(),
            query_data: key.as_bytes().to_vec(),
        };
        scene
            .rpc
            .query::<QueryRawContractStateResponse>("/cosmwasm.wasm.v1.Query/RawContractState", &request)
            .data
    };
    assert_eq!(raw("count"), 9u64.to_be_bytes());
    assert_eq!(raw("no such key"), b"");

    let all = |pagination| {
        let request = QueryAllContractStateRequest {
            address: contract.clone(),
            pagination,
        };
        scene
            .rpc
            .query::<QueryAllContractStateResponse>("/cosmwasm.wasm.v1.Query/AllContractState", &request)
    };
    let keys: Vec<String> = all(None)
        .models
        .into_iter()
        .map(|m| String::from_utf8(m.key).unwrap())
        .collect();
    assert_eq!(
        keys,
        [format!("by/{}", scene.alice.address()), "count".to_string()]
    );
    let first = all(Some(PageRequest {
        limit: 1,
        ..PageRequest::default()
    }));
    assert_eq!(first.pagination.unwrap().next_key, b"count");

    let info = |address: &str| {
        let request = QueryContractInfoRequest {
            address: address.to_string(),
        };
        scene.rpc.abci("/cosmwasm.wasm.v1.Query/ContractInfo", &request)
    };
    let value = STANDARD
        .decode(info(&contract)["value"].as_str().unwrap())
        .unwrap();
    let found = QueryContractInfoResponse::decode(value.as_slice())
        .unwrap()
        .contract_info
        .unwrap();
    assert_eq!((found.code_id, found.label.as_str()), (1, "counter"));
    assert_eq!(
        (found.creator, found.admin),
        (scene.alice.address(), scene.alice.address())
    );
    assert_eq!(found.created.unwrap().block_height, 2);
    refused(
        &info(NOWHERE),
        6,
        &format!("address {NOWHERE}: no such contract: unknown request"),
    );

    let codes: QueryCodesResponse = scene.rpc.query(
        "/cosmwasm.wasm.v1.Query/Codes",
        &QueryCodesRequest { pagination: None },
    );
    let ids: Vec<u64> = codes.code_infos.iter().map(|code| code.code_id).collect();
    assert_eq!(ids, [1]);
    assert_eq!(codes.code_infos[0].data_hash.len(), 32);
}
