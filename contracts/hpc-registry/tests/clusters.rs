//! Clusters: coins, closing, and what is left of a closed one.
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

use common::*;
use cosmwasm_std::{BankMsg, CosmosMsg, ReplyOn, coin};
use hpc_schema::code::Code;
use hpc_schema::registry::{ClusterAnswer, ExecuteMsg, NodesAnswer, SweepAnswer};
use serde_json::json;

#[test]
fn coins_are_taken_for_a_cluster_and_for_nothing_else() {
    let mut chain = with_deposit();
    let anyone = chain.deps.api.addr_make("anyone");
    let create: ExecuteMsg =
        serde_json::from_value(json!({"create_cluster": {"cluster_id": CLUSTER}})).unwrap();
    for funds in [
        vec![],
        vec![coin(499, "stake")],
        vec![coin(500, "other")],
        vec![coin(500, "stake"), coin(1, "x")],
    ] {
        assert_eq!(
            code(chain.send_with(&anyone, &funds, create.clone())),
            Code::InvalidDeposit
        );
    }
    chain.send_with(&anyone, &[coin(500, "stake")], create).unwrap();
    let sweep = ExecuteMsg::Sweep {
        cluster_id: None,
        limit: None,
    };
    assert_eq!(
        code(chain.send_with(&anyone, &[coin(1, "stake")], sweep)),
        Code::InvalidDeposit
    );
    let info = cosmwasm_std::testing::message_info(&anyone, &[coin(1, "stake")]);
    let msg = serde_json::from_value(json!({})).unwrap();
    let refused = hpc_registry::contract::instantiate(chain.deps.as_mut(), chain.env.clone(), info, msg);
    assert_eq!(code(refused), Code::InvalidDeposit);
}

/// A bare chain on which a cluster costs 500stake.
fn with_deposit() -> Chain {
    let mut chain = Chain::bare();
    let admin = chain.admin.clone();
    let deposit =
        json!({"update_params": {"params": {"cluster_deposit": {"denom": "stake", "amount": "500"}}}});
    chain.send(&admin, deposit).unwrap();
    chain
}

fn create_paid(chain: &mut Chain, id: &str) {
    let owner = chain.provider.address(chain);
    let create: ExecuteMsg = serde_json::from_value(json!({"create_cluster": {"cluster_id": id}})).unwrap();
    chain.send_with(&owner, &[coin(500, "stake")], create).unwrap();
}

fn close(chain: &mut Chain, id: &str) -> Outcome {
    chain.provider_sends(json!({"close_cluster": {"cluster_id": id}}))
}

#[test]
fn a_closed_cluster_gives_its_deposit_to_its_owner_whatever_the_deposit_is_now() {
    let mut chain = with_deposit();
    create_paid(&mut chain, CLUSTER);
    let (admin, next) = (chain.admin.clone(), chain.deps.api.addr_make("next"));
    chain
        .send(
            &admin,
            json!({"update_params": {"params": {"cluster_deposit": {"denom": "stake", "amount": "9"}}}}),
        )
        .unwrap();
    let answer: ClusterAnswer = chain.query(json!({"cluster": {"cluster_id": CLUSTER}})).unwrap();
    assert_eq!(answer.cluster.deposit.unwrap().amount, "500");
    chain
        .provider_sends(json!({"propose_cluster_owner": {"cluster_id": CLUSTER, "owner": next}}))
        .unwrap();
    chain
        .send(&next, json!({"accept_cluster_owner": {"cluster_id": CLUSTER}}))
        .unwrap();
    assert_eq!(code(close(&mut chain, CLUSTER)), Code::NotAuthorized);
    let response = chain
        .send(&next, json!({"close_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
    assert_eq!(response.messages.len(), 1);
    assert_eq!(response.messages[0].reply_on, ReplyOn::Never);
    assert_eq!(
        response.messages[0].msg,
        CosmosMsg::Bank(BankMsg::Send {
            to_address: next.to_string(),
            amount: vec![coin(500, "stake")]
        })
    );
    // Once.
    let again = chain.send(&next, json!({"close_cluster": {"cluster_id": CLUSTER}}));
    assert_eq!(code(again), Code::UnknownCluster);
}

#[test]
fn a_cluster_is_closed_only_when_it_is_off_and_has_no_node_on_record() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    assert_eq!(code(close(&mut chain, CLUSTER)), Code::InvalidState);
    chain
        .provider_sends(json!({"deactivate_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
    assert_eq!(code(close(&mut chain, CLUSTER)), Code::InvalidState);
    chain
        .provider_sends(json!({"deregister_node": {"node_id": "node-0001"}}))
        .unwrap();
    assert_eq!(code(close(&mut chain, CLUSTER)), Code::InvalidState);
    chain.advance(30 * 86_400 + 1);
    chain.anyone_sends(json!({"prune": {}})).unwrap();
    // Nothing was paid, nothing comes back.
    assert!(close(&mut chain, CLUSTER).unwrap().messages.is_empty());
    let gone = chain.query::<ClusterAnswer>(json!({"cluster": {"cluster_id": CLUSTER}}));
    assert_eq!(code(gone), Code::UnknownCluster);
    let registration = agent.registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(registration)), Code::UnknownCluster);
}

#[test]
fn a_closed_clusters_id_is_free_and_its_heir_has_nothing_of_it() {
    let mut chain = Chain::new();
    let mut old = chain.register("node-0001");
    chain.beat(&mut old);
    let anchor = json!({"anchor": {"cluster_id": CLUSTER, "kind": "audit-head", "digest": "ab".repeat(32)}});
    chain.provider_sends(anchor.clone()).unwrap();
    for msg in [
        json!({"deactivate_cluster": {"cluster_id": CLUSTER}}),
        json!({"deregister_node": {"node_id": "node-0001"}}),
    ] {
        chain.provider_sends(msg).unwrap();
    }
    chain.create_cluster("second");
    let mut other = chain.register_in("second", "node-0002");
    chain.advance(30 * 86_400 + 1);
    chain.anyone_sends(json!({"prune": {}})).unwrap();
    close(&mut chain, CLUSTER).unwrap();

    // Sweeps and lists walk over the gap that its number leaves.
    chain.beat(&mut other);
    chain.advance(121);
    let mut done = false;
    for _ in 0..3 {
        done = data::<SweepAnswer>(&chain.anyone_sends(json!({"sweep": {"limit": 1}})).unwrap()).done;
        if done {
            break;
        }
    }
    assert!(done);
    assert_eq!(chain.aggregate("second").recorded.states.stale, 1);
    let all: NodesAnswer = chain.query(json!({"nodes": {}})).unwrap();
    assert_eq!((all.nodes.len(), all.next), (1, None));

    // Somebody else takes the id: new number, no anchor, no node, and the old agent does not get in.
    chain.provider = Provider::new(2);
    chain.create_cluster(CLUSTER);
    assert_eq!(chain.aggregate(CLUSTER).recorded.total_nodes, 0);
    let anchors: hpc_schema::registry::AnchorsAnswer =
        chain.query(json!({"anchors": {"cluster_id": CLUSTER}})).unwrap();
    assert!(anchors.anchors.is_empty());
    let mut heir = chain.register("node-0001");
    assert_eq!((heir.page, heir.slot), (0, 0));
    old.attach = true;
    assert_eq!(outcomes(&chain.beat(&mut old), 1), [Err(Code::SignatureInvalid)]);
    assert_eq!(chain.beat(&mut heir).accepted, 1);
    chain.provider_sends(anchor).unwrap();
}

#[test]
fn region_and_gateway_endpoint_are_taken_away_by_an_empty_text_and_a_name_is_not() {
    let mut chain = Chain::bare();
    let create = json!({"create_cluster": {"cluster_id": CLUSTER, "region": "eu", "gateway_endpoint": "https://gateway.example"}});
    chain.provider_sends(create).unwrap();
    let cluster = |chain: &Chain| -> hpc_schema::registry::Cluster {
        chain
            .query::<ClusterAnswer>(json!({"cluster": {"cluster_id": CLUSTER}}))
            .unwrap()
            .cluster
    };
    let update = |field: &str| json!({"update_cluster": {"cluster_id": CLUSTER, field: ""}});
    chain.provider_sends(update("region")).unwrap();
    assert_eq!(cluster(&chain).region, None);
    assert!(cluster(&chain).gateway_endpoint.is_some());
    chain.provider_sends(update("gateway_endpoint")).unwrap();
    assert_eq!(cluster(&chain).gateway_endpoint, None);
    assert_eq!(code(chain.provider_sends(update("name"))), Code::InvalidField);
    // At the creation there is nothing to take away.
    let create = json!({"create_cluster": {"cluster_id": "second", "region": ""}});
    assert_eq!(code(chain.provider_sends(create)), Code::InvalidField);
}
