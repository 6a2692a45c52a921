//! Who may send what: every message by every kind of sender, as a table.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod common;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::*;
use cosmwasm_std::Addr;
use hpc_schema::code::Code;
use hpc_schema::registry::{ExecuteMsg, SubmitAnswer, permission};
use serde_json::{Value, json};

/// One message of each kind, the first field its name.
fn messages(chain: &mut Chain) -> Vec<Value> {
    let cluster = json!(CLUSTER);
    let key = STANDARD.encode([9u8; 32]);
    let agent = Agent::new(CLUSTER, "node-0002");
    let mut reporting = Agent::new(CLUSTER, "node-0001");
    reporting.epoch = 1;
    let registration = agent.registration(chain);
    let report = reporting.healthy(chain.now());
    // The right is in the signature: spoilt, nobody has it.
    let mut spoilt_registration = registration.clone();
    let signature = &mut spoilt_registration["register_node"]["provider_signature"];
    let mut bytes = STANDARD.decode(signature.as_str().unwrap()).unwrap();
    bytes[40] ^= 1;
    *signature = STANDARD.encode(bytes).into();
    let mut spoilt_report = report.clone();
    spoilt_report.signature[40] ^= 1;
    let someone = chain.deps.api.addr_make("someone");
    vec![
        json!({"update_params": {"params": {"retention": 86_400}}}),
        json!({"propose_admin": {"admin": someone}}),
        json!({"accept_admin": {}}),
        json!({"pause_registrations": {"paused": true}}),
        json!({"create_cluster": {"cluster_id": "another"}}),
        json!({"update_cluster": {"cluster_id": cluster, "region": "eu-central"}}),
        json!({"set_task_key": {"cluster_id": cluster, "task_public_key": key}}),
        json!({"activate_cluster": {"cluster_id": cluster}}),
        json!({"deactivate_cluster": {"cluster_id": cluster}}),
        json!({"close_cluster": {"cluster_id": cluster}}),
        json!({"propose_cluster_owner": {"cluster_id": cluster, "owner": someone}}),
        json!({"accept_cluster_owner": {"cluster_id": cluster}}),
        registration,
        spoilt_registration,
        json!({"deregister_node": {"node_id": "node-0001"}}),
        json!({"drain_node": {"node_id": "node-0001"}}),
        json!({"resume_node": {"cluster_id": cluster, "node_id": "node-0001"}}),
        batch(vec![(&reporting, report)]),
        batch(vec![(&reporting, spoilt_report)]),
        json!({"sweep": {}}),
        json!({"prune": {}}),
        json!({"anchor": {"cluster_id": cluster, "kind": "audit-head", "digest": "ab".repeat(32)}}),
    ]
}

/// `yes`, `–` for a sender without the right, or the code of another refusal; of a batch, that of its one report.
fn said(outcome: &Outcome) -> String {
    let code = match outcome {
        Err(error) => error.code().expect("a code"),
        Ok(response) => {
            let answer = response
                .data
                .as_ref()
                .and_then(|d| cosmwasm_std::from_json::<SubmitAnswer>(d).ok());
            match answer.as_ref().map(|a| &a.refused[..]) {
                Some([(_, number)]) => Code::from_number(*number).unwrap(),
                _ => return "yes".to_owned(),
            }
        }
    };
    match code {
        Code::NotAuthorized => "–".to_owned(),
        other => format!("`{other}`"),
    }
}

fn name(msg: &Value) -> String {
    msg.as_object().unwrap().keys().next().unwrap().clone()
}

#[test]
fn every_message_may_be_sent_by_exactly_those_the_table_names() {
    let mut chain = Chain::new();
    chain.register("node-0001");
    let operator = chain.deps.api.addr_make("operator");
    let proposed_owner = chain.deps.api.addr_make("proposed-owner");
    let proposed_admin = chain.deps.api.addr_make("proposed-admin");
    let admin = chain.admin.clone();
    let owner = chain.provider.address(&chain);
    let anyone = chain.deps.api.addr_make("anyone");
    chain
        .provider_sends(json!({"update_cluster": {"cluster_id": CLUSTER, "operators": [operator]}}))
        .unwrap();
    chain
        .provider_sends(json!({"propose_cluster_owner": {"cluster_id": CLUSTER, "owner": proposed_owner}}))
        .unwrap();
    chain
        .send(&admin, json!({"propose_admin": {"admin": proposed_admin}}))
        .unwrap();

    let senders: [(&str, &Addr); 6] = [
        ("admin", &admin),
        ("proposed admin", &proposed_admin),
        ("owner", &owner),
        ("operator", &operator),
        ("proposed owner", &proposed_owner),
        ("anyone", &anyone),
    ];
    let msgs = messages(&mut chain);
    // With open and with closed creation of clusters: only `create_cluster` depends on it.
    let mut table = String::from(
        "| message | right | admin | proposed admin | owner | operator | proposed owner | anyone |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for creation in ["open", "admin"] {
        let closed = creation == "admin";
        chain
            .send(
                &admin,
                json!({"update_params": {"params": {"cluster_creation": creation}}}),
            )
            .unwrap();
        for msg in msgs.iter().filter(|m| !closed || name(m) == "create_cluster") {
            let typed: ExecuteMsg = serde_json::from_value(msg.clone()).unwrap();
            let right = serde_json::to_value(permission(&typed)).unwrap();
            let spoilt = msgs
                .iter()
                .take_while(|m| *m != msg)
                .any(|m| name(m) == name(msg));
            let mut row = format!(
                "| {}{} | {}",
                name(msg),
                match (closed, spoilt) {
                    (true, _) => " (closed)",
                    (_, true) => " (spoilt signature)",
                    _ => "",
                },
                right.as_str().unwrap()
            );
            for (_, sender) in senders {
                let before = chain.deps.storage.clone();
                let outcome = chain.send(sender, msg.clone());
                chain.deps.storage = before;
                row.push_str(" | ");
                row.push_str(&said(&outcome));
            }
            table.push_str(&row);
            table.push_str(" |\n");
        }
    }
    golden("permissions.md", &table);
}

#[test]
fn the_table_has_every_message() {
    let mut chain = Chain::new();
    let names: BTreeSet<_> = messages(&mut chain).iter().map(name).collect();
    // serde names every variant when it meets an unknown one.
    let error = serde_json::from_value::<ExecuteMsg>(json!({"no_such_message": {}}))
        .unwrap_err()
        .to_string();
    let variants: BTreeSet<_> = error.split('`').skip(3).step_by(2).map(str::to_owned).collect();
    assert_eq!(names, variants, "{error}");
}

#[test]
fn administration_and_ownership_go_over_in_two_steps() {
    let mut chain = Chain::new();
    let (admin, next) = (chain.admin.clone(), chain.deps.api.addr_make("next"));
    chain
        .send(&admin, json!({"propose_admin": {"admin": next}}))
        .unwrap();
    chain
        .send(&admin, json!({"pause_registrations": {"paused": true}}))
        .unwrap();
    chain.send(&next, json!({"accept_admin": {}})).unwrap();
    let refused = chain.send(&admin, json!({"pause_registrations": {"paused": false}}));
    assert_eq!(code(refused), Code::NotAuthorized);
    chain
        .send(&next, json!({"pause_registrations": {"paused": false}}))
        .unwrap();
    assert_eq!(
        code(chain.send(&next, json!({"accept_admin": {}}))),
        Code::NotAuthorized
    );
    // A proposal can be withdrawn.
    chain
        .send(&next, json!({"propose_admin": {"admin": admin}}))
        .unwrap();
    chain
        .send(&next, json!({"propose_admin": {"admin": null}}))
        .unwrap();
    assert_eq!(
        code(chain.send(&admin, json!({"accept_admin": {}}))),
        Code::NotAuthorized
    );

    chain
        .provider_sends(json!({"propose_cluster_owner": {"cluster_id": CLUSTER, "owner": next}}))
        .unwrap();
    chain
        .send(&next, json!({"accept_cluster_owner": {"cluster_id": CLUSTER}}))
        .unwrap();
    let refused = chain.provider_sends(json!({"deactivate_cluster": {"cluster_id": CLUSTER}}));
    assert_eq!(code(refused), Code::NotAuthorized);
    chain
        .send(&next, json!({"deactivate_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
}

#[test]
fn a_task_key_is_replaced_only_with_the_present_ones_word() {
    let mut chain = Chain::new();
    let (first, second) = (common::actors::key_of("task 1"), common::actors::key_of("task 2"));
    let public =
        |key: &ed25519_zebra::SigningKey| -> [u8; 32] { ed25519_zebra::VerificationKey::from(key).into() };
    let set = |key: &ed25519_zebra::SigningKey, signature: Option<String>| {
        json!({"set_task_key": {
            "cluster_id": CLUSTER, "task_public_key": STANDARD.encode(public(key)), "rotation_signature": signature}})
    };
    chain.provider_sends(set(&first, None)).unwrap();
    assert_eq!(
        code(chain.provider_sends(set(&second, None))),
        Code::SignatureInvalid
    );
    let new = hpc_schema::key::AgentKey::from_bytes(public(&second)).unwrap();
    let contract = chain.env.contract.address.clone();
    let message = hpc_schema::registration::task_key_rotation_message(
        CHAIN_ID,
        contract.as_str(),
        &CLUSTER.parse().unwrap(),
        &new,
    );
    let sign = |key: &ed25519_zebra::SigningKey| {
        let signature: [u8; 64] = key.sign(&message).into();
        Some(STANDARD.encode(signature))
    };
    assert_eq!(
        code(chain.provider_sends(set(&second, sign(&second)))),
        Code::SignatureInvalid
    );
    chain.provider_sends(set(&second, sign(&first))).unwrap();
}
