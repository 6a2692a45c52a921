//! The settlement machine over RPC, on the embedded chain, with the faults that the chain can be given.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{CHAIN_ID, World, address, options};
use hpc_chain::gas::Coin;
use hpc_chain::msg;
use hpc_chain::query::QueryError;
use hpc_chain::rpc::RpcError;
use hpc_chain::send::{Gas, Pay, SendOptions, send_and_wait};
use hpc_chain::settle::{
    Action, Alarm, BatchId, Condition, Config, End, Input, SignRequest, SignedTx, State, io, step,
};
use hpc_chain::tx::{self, Fee, SignerData, Unsigned};
use hpc_devnet::BlockMode;

/// A driver whose disk is a string.
struct Driver<'a> {
    world: &'a World,
    state: State,
    disk: String,
    config: Config,
    /// Added to the clock.
    skew_ms: u64,
    ends: Vec<(BatchId, Option<End>)>,
    alarms: Vec<Alarm>,
}

impl<'a> Driver<'a> {
    fn new(world: &'a World) -> Self {
        let config = Config {
            lifetime_ms: 50_000,
            ..Config::default()
        };
        let disk = serde_json::to_string(&State::default()).unwrap();
        Self {
            world,
            state: State::default(),
            disk,
            config,
            skew_ms: 0,
            ends: vec![],
            alarms: vec![],
        }
    }

    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        u64::try_from(now).unwrap() + self.skew_ms
    }

    /// The bytes of a batch: one token to Bob for each.
    fn sign(&self, request: SignRequest) -> SignedTx {
        let alice = &self.world.alice;
        let coin: Coin = "1stake".parse().unwrap();
        let unsigned = Unsigned {
            messages: vec![msg::send(&address(alice), &address(&self.world.bob), &[coin])],
            memo: request.batch.0.to_string(),
            timeout_height: NonZeroU64::new(request.timeout_height).unwrap(),
            fee: Fee {
                amount: vec![],
                gas_limit: 200_000,
                ..Fee::default()
            },
        };
        let signer = SignerData {
            chain_id: CHAIN_ID,
            account_number: request.account_number,
            sequence: request.sequence,
        };
        SignedTx {
            request,
            bytes: tx::sign(alice, signer, &unsigned).unwrap().bytes,
        }
    }

    /// Takes the inputs in, carries the actions out, and so on until nothing is left; stops before the broadcast if told.
    async fn feed(&mut self, inputs: Vec<Input>, send: bool) {
        let mut inbox = inputs;
        while !inbox.is_empty() {
            for input in std::mem::take(&mut inbox) {
                let now = self.now();
                for action in step(&mut self.state, &self.config, now, input) {
                    match action {
                        Action::Persist => self.disk = serde_json::to_string(&self.state).unwrap(),
                        Action::Sign(request) => inbox.push(Input::Signed(self.sign(request))),
                        Action::Finished { batch, end } => {
                            self.ends.push((batch, Some(end)));
                            inbox.push(Input::Settled { batch });
                        }
                        Action::QueryNodeSequences { batch, .. } => {
                            self.ends.push((batch, None));
                            inbox.push(Input::Settled { batch });
                        }
                        Action::Alarm(alarm) => self.alarms.push(alarm),
                        Action::Broadcast { .. } if !send => return,
                        other => {
                            let from = address(&self.world.alice);
                            inbox.extend(io::perform(&self.world.chain, &from, &self.state, &other).await);
                        }
                    }
                }
            }
        }
    }

    async fn heads(&mut self) {
        let heads = io::heads(&self.world.chain, CHAIN_ID).await;
        self.feed(heads, true).await;
    }

    async fn block(&mut self) {
        self.world.devnet.produce_block().unwrap();
        self.heads().await;
    }

    async fn crash(&mut self) {
        self.state = serde_json::from_str(&self.disk).unwrap();
        self.feed(vec![Input::Restarted], true).await;
    }
}

fn on_demand() -> World {
    let world = World::with(|c| c.blocks = BlockMode::OnDemand);
    world.devnet.produce_block().unwrap();
    world
}

const ONE: BatchId = BatchId(1);

#[tokio::test]
async fn a_batch_is_signed_sent_and_included() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    assert_eq!(world.devnet.mempool_len(), 1);
    d.block().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert!(d.state.is_idle());
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn a_crash_between_storing_and_sending_loses_nothing() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], false).await;
    assert_eq!(world.devnet.mempool_len(), 0);
    d.crash().await;
    d.block().await;
    assert_eq!(world.devnet.mempool_len(), 1, "the stored bytes are sent");
    d.block().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn a_crash_after_inclusion_finds_the_end_in_the_chain() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    world.devnet.produce_block().unwrap();
    d.crash().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn what_never_reaches_a_block_expires_and_its_replacement_takes_the_same_sequence() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], false).await;
    let timeout = d.state.outstanding().unwrap().timeout_height;
    // No head is shown, so nothing is sent again, until the timeout height is there.
    while world.devnet.height().unwrap() < timeout {
        world.devnet.produce_block().unwrap();
    }
    d.heads().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Expired { .. }))]),
        "{:?}",
        d.ends
    );
    d.feed(vec![Input::Submit { batch: BatchId(2) }], true).await;
    assert_eq!(d.state.outstanding().unwrap().sequence, 0);
    d.block().await;
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn a_foreign_transaction_on_the_same_key_is_noticed_and_the_batch_given_back() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], false).await;
    // Somebody else uses the key before our bytes arrive.
    let coin: Coin = "100stake".parse().unwrap();
    let messages = vec![msg::send(&address(&world.alice), &address(&world.bob), &[coin])];
    let cheap = SendOptions {
        gas: Gas::Fixed(200_000),
        pay: Pay::Coins(vec![]),
        ..options()
    };
    let (foreign, ()) = tokio::join!(
        send_and_wait(&world.chain, &world.alice, &cheap, messages),
        async {
            for _ in 0..250 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if world.devnet.mempool_len() > 0 {
                    world.devnet.produce_block().unwrap();
                    return;
                }
            }
        }
    );
    foreign.unwrap();
    d.block().await;
    d.block().await;
    assert_eq!(d.ends, [(ONE, None)], "settled by reading the contract");
    assert_eq!(d.alarms, [Alarm::ForeignTransaction { sequence: 0 }]);
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    assert_eq!(d.state.outstanding().unwrap().sequence, 1);
    d.block().await;
    assert_eq!(world.balance(&world.bob).await, 101);
}

#[tokio::test]
async fn an_emptied_mempool_gets_the_same_bytes_again() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    world.devnet.clear_mempool();
    for _ in 0..3 {
        d.block().await;
    }
    assert_eq!(world.devnet.mempool_len(), 1);
    d.block().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn a_full_mempool_is_waited_for() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    world.devnet.set_mempool_size(0);
    d.heads().await;
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    d.block().await;
    assert_eq!(world.devnet.mempool_len(), 0);
    world.devnet.set_mempool_size(10);
    d.block().await;
    d.block().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert!(d.alarms.is_empty(), "{:?}", d.alarms);
}

#[tokio::test]
async fn a_halted_chain_is_an_alarm_and_nothing_moves_until_its_time_is_ours_again() {
    let world = on_demand();
    let mut d = Driver::new(&world);
    d.heads().await;
    world.devnet.halt();
    d.skew_ms = 90_000;
    d.feed(vec![Input::Tick], true).await;
    assert!(matches!(d.alarms[..], [Alarm::Halted { .. }]));
    d.feed(vec![Input::Submit { batch: ONE }], true).await;
    assert!(d.state.outstanding().is_none(), "nothing is signed");
    world.devnet.resume();
    d.block().await;
    assert_eq!(
        d.state.condition(),
        Condition::CatchingUp,
        "the first block carries the old time"
    );
    assert!(d.state.outstanding().is_none());
    d.skew_ms = 0;
    d.block().await;
    d.block().await;
    assert!(
        matches!(d.ends[..], [(ONE, Some(End::Included(_)))]),
        "{:?}",
        d.ends
    );
    assert_eq!(world.balance(&world.bob).await, 1);
}

#[tokio::test]
async fn an_answer_below_the_height_asked_for_does_not_count() {
    let world = on_demand();
    let (alice, height) = (address(&world.alice), world.devnet.height().unwrap());
    let from = |h| world.chain.from_height(h);
    assert!(from(height).account(&alice).await.unwrap().height >= height);
    let behind =
        |e: QueryError| matches!(e, QueryError::Rpc(RpcError::Behind { wanted, .. }) if wanted == height + 1);
    assert!(behind(from(height + 1).account(&alice).await.unwrap_err()));
    // A refusal does not say its height, and proves as little.
    let nobody = address(&world.bob);
    assert!(behind(from(height + 1).contract_info(&nobody).await.unwrap_err()));
    world.devnet.produce_block().unwrap();
    world.devnet.produce_block().unwrap();
    assert!(from(height + 1).account(&alice).await.is_ok());
    let refused = from(height + 1).contract_info(&nobody).await.unwrap_err();
    assert!(!behind(refused));
}
