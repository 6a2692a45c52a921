//! The typed client against the registry that the embedded chain links natively as code 1.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::time::Duration;

use common::{World, address, options};
use hpc_chain::msg;
use hpc_chain::query::QueryError;
use hpc_chain::registry::{RegistryClient, events, response_data};
use hpc_chain::send::{Gas, SendError, SendOptions, send_and_wait};
use hpc_devnet::BlockMode;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::{Event, InstantiateMsg, JobIds, NodeFilter, Params, ParamsUpdate};

async fn deployed() -> (World, RegistryClient) {
    let world = World::with(|c| c.blocks = BlockMode::Every(Duration::from_millis(100)));
    let alice = address(&world.alice);
    let init = InstantiateMsg {
        admin: None,
        params: ParamsUpdate::default(),
    };
    let message = msg::instantiate(&alice, Some(&alice), 1, "registry", &init, &[]).unwrap();
    let sent = send_and_wait(&world.chain, &world.alice, &options(), vec![message])
        .await
        .unwrap();
    let contract = String::from_utf8(response_data(&sent.tx.result, 0).unwrap().unwrap()).unwrap();
    let info = world.chain.contract_info(&contract).await.unwrap().value;
    assert_eq!(
        (info.code_id, info.admin, info.label.as_str()),
        (1, alice, "registry")
    );
    let client = RegistryClient::new(world.chain.clone(), contract);
    (world, client)
}

fn cluster() -> ClusterId {
    "hpc-cluster-1".parse().unwrap()
}

#[tokio::test]
async fn a_cluster_is_created_activated_and_asked_for() {
    let (world, registry) = deployed().await;
    let alice = address(&world.alice);
    assert_eq!(registry.params().await.unwrap().value, Params::default());
    assert_eq!(registry.config().await.unwrap().value.admin, alice);

    let none = (None, None, None);
    let create = registry
        .create_cluster(
            &alice,
            cluster(),
            none.0,
            none.1,
            none.2,
            vec![],
            None,
            JobIds::None,
        )
        .unwrap();
    let activate = registry.activate_cluster(&alice, cluster()).unwrap();
    let sent = send_and_wait(&world.chain, &world.alice, &options(), vec![create, activate])
        .await
        .unwrap();
    let actions: Vec<String> = events(&sent.tx.result, registry.contract())
        .unwrap()
        .into_iter()
        .map(|e| match e {
            Event::ClusterChange { action, .. } => action,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        actions,
        ["created", "activated"],
        "both messages of one transaction"
    );

    assert!(
        world.balance(&world.alice).await < 1_000_000_000,
        "fees were paid"
    );

    let answer = registry.cluster(cluster()).await.unwrap();
    assert!(answer.value.cluster.active);
    assert_eq!(answer.value.cluster.owner, alice);
    assert!(answer.height >= sent.tx.height);
    assert_eq!(
        registry
            .clusters(Some(alice), None, None)
            .await
            .unwrap()
            .value
            .clusters
            .len(),
        1
    );
    assert_eq!(
        registry
            .aggregate(cluster())
            .await
            .unwrap()
            .value
            .recorded
            .total_nodes,
        0
    );
    let nodes = registry
        .nodes(NodeFilter::default(), None, None)
        .await
        .unwrap()
        .value;
    assert!(nodes.nodes.is_empty() && nodes.next.is_none());
    assert!(
        registry
            .relay(cluster(), vec!["node-1".parse().unwrap()])
            .await
            .unwrap()
            .value
            .nodes
            .is_empty()
    );
}

#[tokio::test]
async fn the_contracts_refusals_keep_their_code_in_queries_simulations_and_blocks() {
    let (world, registry) = deployed().await;
    let asked = registry.cluster(cluster()).await.unwrap_err();
    assert!(
        matches!(
            asked,
            QueryError::Contract {
                code: Some(Code::UnknownCluster),
                ..
            }
        ),
        "{asked:?}"
    );
    let asked = registry.node(None, "node-1".parse().unwrap()).await.unwrap_err();
    assert!(
        matches!(
            asked,
            QueryError::Contract {
                code: Some(Code::UnknownNode),
                ..
            }
        ),
        "{asked:?}"
    );

    let activate = || {
        vec![
            registry
                .activate_cluster(&address(&world.alice), cluster())
                .unwrap(),
        ]
    };
    let simulated = send_and_wait(&world.chain, &world.alice, &options(), activate())
        .await
        .unwrap_err();
    assert!(
        matches!(
            simulated,
            SendError::Query(QueryError::Contract {
                code: Some(Code::UnknownCluster),
                ..
            })
        ),
        "{simulated:?}"
    );
    let fixed = SendOptions {
        gas: Gas::Fixed(400_000),
        ..options()
    };
    let failed = send_and_wait(&world.chain, &world.alice, &fixed, activate())
        .await
        .unwrap_err();
    let SendError::Failed {
        code,
        abci_code,
        codespace,
        height,
        ..
    } = failed
    else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (code, abci_code, codespace.as_str()),
        (Some(Code::UnknownCluster), 5, "wasm")
    );
    assert!((1..=world.devnet.height().unwrap()).contains(&height));
}

#[tokio::test]
async fn a_contract_that_is_not_there_is_told_as_such() {
    let (world, _) = deployed().await;
    let nowhere = RegistryClient::new(world.chain.clone(), address(&world.bob));
    let missing = nowhere.params().await.unwrap_err();
    assert!(matches!(missing, QueryError::NotFound { .. }), "{missing:?}");
    assert!(matches!(
        world.chain.contract_info(&address(&world.bob)).await,
        Err(QueryError::NotFound { .. })
    ));
    let codes = world.chain.codes().await.unwrap().value;
    assert_eq!(codes.first().map(|c| c.code_id), Some(1));
}
