//! Sending on the embedded chain, whose CheckTx, sequences and timeout heights are real.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::time::{Duration, Instant};

use common::{CHAIN_ID, TOP_BIT, World, address, options};
use hpc_chain::code::Verdict;
use hpc_chain::gas::Coin;
use hpc_chain::msg;
use hpc_chain::query::QueryError;
use hpc_chain::send::{Gas, Pay, SendError, SendOptions, send_and_wait};
use hpc_devnet::BlockMode;

const SOON: Duration = Duration::from_secs(60);

/// Blocks every 100 ms.
fn timed() -> World {
    World::with(|c| c.blocks = BlockMode::Every(Duration::from_millis(100)))
}

fn transfer(world: &World, coins: &str) -> Vec<hpc_chain::msg::Any> {
    let coins: Coin = coins.parse().unwrap();
    vec![msg::send(&address(&world.alice), &address(&world.bob), &[coins])]
}

#[tokio::test]
async fn a_transfer_takes_effect_once_and_pays_its_fee() {
    let world = timed();
    let sent = send_and_wait(&world.chain, &world.alice, &options(), transfer(&world, "7stake"))
        .await
        .unwrap();
    assert_eq!(sent.tx.result.code, 0);
    assert!(sent.tx.result.gas_wanted == sent.fee.gas_limit && sent.tx.result.gas_used > 0);
    let fee = sent.fee.amount[0].amount;
    assert_eq!(world.balance(&world.bob).await, 7);
    assert_eq!(world.balance(&world.alice).await, 1_000_000_000 - 7 - fee);

    let again = send_and_wait(&world.chain, &world.alice, &options(), transfer(&world, "7stake"))
        .await
        .unwrap();
    assert_ne!(again.tx.hash, sent.tx.hash);
    assert_eq!(world.balance(&world.bob).await, 14);
}

#[tokio::test]
async fn account_numbers_use_all_64_bits() {
    let world = timed();
    let account = world
        .chain
        .account(&address(&world.alice))
        .await
        .unwrap()
        .value
        .unwrap();
    assert_eq!((account.number, account.sequence), (TOP_BIT, 0));
    send_and_wait(&world.chain, &world.alice, &options(), transfer(&world, "1stake"))
        .await
        .unwrap();
    let account = world.chain.account(&address(&world.alice)).await.unwrap();
    assert_eq!(account.value.unwrap().sequence, 1);
    assert!(account.height > 0, "an answer carries its own height");
}

#[tokio::test]
async fn an_unknown_account_is_told_as_such() {
    let world = timed();
    assert_eq!(
        world.chain.account(&address(&world.bob)).await.unwrap().value,
        None
    );
    let coins: Coin = "1stake".parse().unwrap();
    let messages = vec![msg::send(&address(&world.bob), &address(&world.alice), &[coins])];
    let refused = send_and_wait(&world.chain, &world.bob, &options(), messages)
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        SendError::AccountUnknown {
            address: address(&world.bob)
        }
    );
}

#[tokio::test]
async fn another_chain_than_the_one_named_gets_nothing() {
    let world = timed();
    let wrong = SendOptions {
        chain_id: "other-1".to_owned(),
        ..options()
    };
    let refused = send_and_wait(&world.chain, &world.alice, &wrong, transfer(&world, "1stake")).await;
    assert!(
        matches!(refused, Err(SendError::WrongChain { ref found, .. }) if found == CHAIN_ID),
        "{refused:?}"
    );
}

#[tokio::test]
async fn what_the_simulation_refuses_is_not_sent() {
    let world = timed();
    let refused = send_and_wait(
        &world.chain,
        &world.alice,
        &options(),
        transfer(&world, "2000000000stake"),
    )
    .await;
    let Err(SendError::Query(QueryError::Refused { verdict, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(verdict, Verdict::InsufficientFunds);
    assert_eq!(
        world
            .chain
            .account(&address(&world.alice))
            .await
            .unwrap()
            .value
            .unwrap()
            .sequence,
        0
    );
}

#[tokio::test]
async fn a_refusal_by_check_tx_is_told_at_once_with_its_remedy() {
    let world = World::with(|c| {
        c.blocks = BlockMode::Every(Duration::from_millis(100));
        c.min_gas_price = "0.5stake".parse().unwrap();
    });
    let cheap = SendOptions {
        gas: Gas::Fixed(200_000),
        pay: Pay::Coins(vec![]),
        ..options()
    };
    let started = std::time::Instant::now();
    let refused = send_and_wait(&world.chain, &world.alice, &cheap, transfer(&world, "1stake"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            SendError::Refused {
                verdict: Verdict::InsufficientFee,
                abci_code: 13,
                ..
            }
        ),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("--gas-prices"), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn out_of_gas_in_a_block_is_a_failure_with_its_place() {
    let world = timed();
    let tight = SendOptions {
        gas: Gas::Fixed(45_000),
        pay: Pay::Coins(vec![]),
        ..options()
    };
    let failed = send_and_wait(&world.chain, &world.alice, &tight, transfer(&world, "1stake"))
        .await
        .unwrap_err();
    match failed {
        SendError::Failed {
            abci_code: 11,
            height,
            ..
        } => assert!(height > 0),
        SendError::Refused {
            verdict: Verdict::OutOfGas,
            ..
        } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(world.balance(&world.bob).await, 0);
}

#[tokio::test]
async fn a_transaction_survives_the_restart_of_the_nodes_mempool() {
    let world = World::with(|c| c.blocks = BlockMode::OnDemand);
    world.devnet.produce_block().unwrap();
    let (chain, alice) = (
        world.chain.clone(),
        hpc_chain::keys::LocalKey::from_secret(&[1; 32]).unwrap(),
    );
    let messages = transfer(&world, "3stake");
    let sending = tokio::spawn(async move { send_and_wait(&chain, &alice, &options(), messages).await });
    wait_for(|| world.devnet.mempool_len() == 1).await;
    world.devnet.clear_mempool();
    // Nobody waits any more; a few blocks later the same bytes are there again.
    let until = Instant::now() + SOON;
    while !sending.is_finished() {
        assert!(Instant::now() < until, "the same bytes were not sent again");
        world.devnet.produce_block().unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    sending.await.unwrap().unwrap();
    assert_eq!(world.balance(&world.bob).await, 3);
}

#[tokio::test]
async fn nothing_is_sent_while_block_time_is_far_from_ours() {
    let world = World::with(|c| c.blocks = BlockMode::OnDemand);
    world.devnet.set_time(4_000_000_000);
    world.devnet.produce_block().unwrap();
    let short = SendOptions {
        deadline: Duration::from_secs(20),
        ..options()
    };
    let refused = send_and_wait(&world.chain, &world.alice, &short, transfer(&world, "1stake")).await;
    assert!(matches!(refused, Err(SendError::Halted { .. })), "{refused:?}");
    assert_eq!(world.devnet.mempool_len(), 0);
}

#[tokio::test]
async fn when_the_wait_is_over_the_hash_is_told() {
    let world = World::with(|c| c.blocks = BlockMode::OnDemand);
    world.devnet.produce_block().unwrap();
    let short = SendOptions {
        deadline: Duration::from_secs(5),
        ..options()
    };
    let unknown = send_and_wait(&world.chain, &world.alice, &short, transfer(&world, "1stake")).await;
    assert!(matches!(unknown, Err(SendError::Unknown { .. })), "{unknown:?}");
    assert_eq!(world.devnet.mempool_len(), 1);
}

async fn wait_for(condition: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < until, "not within a minute");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
