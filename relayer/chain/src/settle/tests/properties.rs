//! Random histories with crashes between any two actions, against the model chain.

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::{Chain, ENDPOINTS, Proposer, Scan, encode};
use crate::settle::*;

const BATCHES: u64 = 4;

#[derive(Debug, Clone)]
enum Event {
    /// Time passes and the next block is made.
    Block {
        ms: u64,
        proposer: Proposer,
        foreign: bool,
        replay: Option<usize>,
    },
    /// An endpoint catches up and its head is reported.
    Head { endpoint: usize, blocks: u64 },
    /// Time passes without a block.
    Wait { ms: u64 },
    /// An endpoint's process restarts.
    EndpointRestart { endpoint: usize },
    /// The driver is killed and starts again.
    Crash,
    /// The driver takes the n-th waiting answer in and carries out so many of the actions, then is killed if fewer.
    Deliver { which: usize, actions: usize },
    /// An answer is lost.
    Lose { which: usize },
    /// No endpoint keeps what came of the transactions of older blocks, neither by an index nor with the block, nor the blocks
    /// themselves if they are pruned.
    Forget { but: u64, pruned: bool },
}

struct World {
    chain: Chain,
    config: Config,
    now: u64,
    /// The stored state: all that survives a crash, beside what has been settled.
    disk: String,
    state: State,
    inbox: Vec<Input>,
    pending: BTreeSet<u64>,
    closed: BTreeSet<u64>,
    which: usize,
    /// How often the contract was asked of a transaction in a block whose results are kept no more.
    untold: u32,
    /// How often of one that took effect in a block that is pruned.
    pruned: u32,
}

impl World {
    fn new() -> Self {
        let now = 1_000_000_000;
        Self {
            chain: Chain::new(now),
            config: Config {
                lifetime_ms: 30_000,
                ..Config::default()
            },
            now,
            disk: serde_json::to_string(&State::default()).unwrap(),
            state: State::default(),
            inbox: Vec::new(),
            pending: (0..BATCHES).collect(),
            closed: BTreeSet::new(),
            which: 0,
            untold: 0,
            pruned: 0,
        }
    }

    fn crash(&mut self) {
        self.state = serde_json::from_str(&self.disk).unwrap();
        self.inbox = vec![Input::Restarted];
    }

    /// One input and at most `budget` of its actions; a crash where the budget ends.
    fn input(&mut self, input: Input, budget: usize) {
        let actions = step(&mut self.state, &self.config, self.now, input);
        for (done, action) in actions.into_iter().enumerate() {
            if done == budget {
                self.crash();
                return;
            }
            self.act(action);
        }
        if self.state.is_idle()
            && let Some(batch) = self.pending.first()
        {
            let submit = Input::Submit {
                batch: BatchId(*batch),
            };
            for action in step(&mut self.state, &self.config, self.now, submit) {
                self.act(action);
            }
        }
    }

    fn settle(&mut self, batch: BatchId, effective: bool) {
        let effects = self.chain.effects.get(&batch.0).copied().unwrap_or(0);
        assert_eq!(
            effects,
            u32::from(effective),
            "the end that was told is the chain's"
        );
        if effective {
            self.pending.remove(&batch.0);
            self.closed.insert(batch.0);
        }
        self.inbox.push(Input::Settled { batch });
    }

    fn act(&mut self, action: Action) {
        // Questions go to either endpoint in turn.
        self.which = (self.which + 1) % ENDPOINTS;
        let e = self.which;
        match action {
            Action::Persist => self.disk = serde_json::to_string(&self.state).unwrap(),
            Action::Sign(request) => {
                self.inbox.push(Input::Signed(SignedTx {
                    request,
                    bytes: encode(&request),
                }));
            }
            Action::Broadcast { hash, endpoints } => {
                let tx = self.state.outstanding().unwrap();
                assert_eq!(tx.hash, hash);
                let stored: State = serde_json::from_str(&self.disk).unwrap();
                assert_eq!(
                    stored.outstanding().map(|t| t.hash),
                    Some(hash),
                    "stored before it is sent"
                );
                assert_eq!(
                    self.state.condition(),
                    Condition::Live,
                    "nothing is sent on a halted chain"
                );
                let bytes = tx.bytes.clone();
                for endpoint in endpoints {
                    let answer = self.chain.check_tx(usize::from(endpoint.0), &bytes);
                    self.inbox.push(Input::CheckTx {
                        endpoint,
                        hash,
                        answer,
                    });
                }
            }
            Action::QueryTx { hash } => self.inbox.push(match self.chain.lookup(e, hash) {
                Some(found) => Input::Found(found),
                None => Input::NotFound { hash },
            }),
            Action::QueryAccount => {
                let height = self.chain.endpoints[e].height;
                let sequence = self.chain.blocks[usize::try_from(height).unwrap()].sequence;
                self.inbox.push(Input::Account {
                    height,
                    account_number: u64::MAX,
                    sequence,
                });
            }
            Action::ScanBlocks { hash, from, to } => {
                let top = self.chain.endpoints[e].height;
                if to <= top {
                    let Scan {
                        inclusions,
                        gone,
                        unread,
                    } = self.chain.scan(from, to, hash);
                    self.inbox.push(Input::Scanned {
                        hash,
                        from,
                        to,
                        inclusions,
                        gone,
                        unread,
                    });
                }
            }
            Action::QueryNodeSequences {
                batch,
                height,
                overtaken,
            } => {
                assert!(
                    self.chain.blocks[usize::try_from(height).unwrap()].sequence > 0,
                    "asked at a height that shows the sequence used"
                );
                let tx = self.state.outstanding().unwrap();
                let seen = self
                    .chain
                    .scan(tx.signed_height + 1, self.chain.height(), tx.hash);
                let effective = self.chain.effects.contains_key(&batch.0);
                assert!(!(overtaken && effective), "it was not overtaken");
                self.untold += u32::from(!seen.gone.is_empty());
                self.pruned += u32::from(effective && seen.unread && seen.gone.is_empty());
                self.settle(batch, effective);
            }
            Action::Finished { batch, end } => match end {
                End::Included(_) => self.settle(batch, true),
                End::Failed(_) | End::Expired { .. } | End::Consumed { .. } => self.settle(batch, false),
            },
            Action::Busy { .. } => panic!("only an idle machine is asked"),
            Action::Alarm(Alarm::ForeignTransaction { sequence }) => {
                assert!(
                    self.chain.foreign.contains(&sequence),
                    "nobody else used sequence {sequence}"
                );
            }
            Action::Alarm(_) => {}
        }
    }

    fn head(&mut self, endpoint: usize, budget: usize) {
        let height = self.chain.endpoints[endpoint].height;
        let block_time_ms = self.chain.blocks[usize::try_from(height).unwrap()].time_ms;
        let endpoint = EndpointId(u16::try_from(endpoint).unwrap());
        self.input(
            Input::Head {
                endpoint,
                height,
                block_time_ms,
            },
            budget,
        );
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Block {
                ms,
                proposer,
                foreign,
                replay,
            } => {
                self.now += ms;
                self.chain.block(self.now, proposer, foreign, replay);
            }
            Event::Head { endpoint, blocks } => {
                self.chain.catch_up(endpoint, blocks);
                self.head(endpoint, usize::MAX);
            }
            Event::Wait { ms } => {
                self.now += ms;
                self.input(Input::Tick, usize::MAX);
            }
            Event::EndpointRestart { endpoint } => self.chain.restart(endpoint),
            Event::Crash => self.crash(),
            Event::Deliver { which, actions } => {
                if !self.inbox.is_empty() {
                    let input = self.inbox.remove(which % self.inbox.len());
                    self.input(input, actions);
                }
            }
            Event::Lose { which } => {
                // A start is no message: it cannot be lost. Nor is the driver's own word that a batch is settled.
                if !self.inbox.is_empty() {
                    let at = which % self.inbox.len();
                    if !matches!(self.inbox[at], Input::Restarted | Input::Settled { .. }) {
                        self.inbox.remove(at);
                    }
                }
            }
            Event::Forget { but, pruned } => self.chain.forget(but, pruned),
        }
    }

    /// Blocks as they should be: every batch must come to its end.
    fn calm(&mut self) {
        for _ in 0..200 {
            self.now += 5_000;
            self.chain.block(self.now, Proposer::Honest, false, None);
            for endpoint in 0..ENDPOINTS {
                self.chain.catch_up(endpoint, u64::MAX / 2);
                self.head(endpoint, usize::MAX);
                while !self.inbox.is_empty() {
                    let input = self.inbox.remove(0);
                    self.input(input, usize::MAX);
                }
            }
            if self.pending.is_empty() && self.state.is_idle() {
                return;
            }
        }
        panic!("not settled after 200 good blocks: {:?}", self.state);
    }
}

fn event() -> impl Strategy<Value = Event> {
    let proposer = prop_oneof![
        6 => Just(Proposer::Honest),
        1 => Just(Proposer::ContractFails),
        1 => Just(Proposer::AnteRefuses),
        4 => Just(Proposer::Empty),
    ];
    let foreign = prop::bool::weighted(0.05);
    let replay = prop::option::weighted(0.2, any::<usize>());
    let budget = prop_oneof![8 => Just(usize::MAX), 1 => 0..3usize];
    prop_oneof![
        8 => (1_000..9_000u64, proposer, foreign, replay).prop_map(|(ms, proposer, foreign, replay)| {
            Event::Block { ms, proposer, foreign, replay }
        }),
        8 => (0..ENDPOINTS, 0..4u64).prop_map(|(endpoint, blocks)| Event::Head { endpoint, blocks }),
        1 => (1_000..100_000u64).prop_map(|ms| Event::Wait { ms }),
        1 => (0..ENDPOINTS).prop_map(|endpoint| Event::EndpointRestart { endpoint }),
        1 => Just(Event::Crash),
        20 => (any::<usize>(), budget).prop_map(|(which, actions)| Event::Deliver { which, actions }),
        2 => any::<usize>().prop_map(|which| Event::Lose { which }),
        2 => (0..4u64, any::<bool>()).prop_map(|(but, pruned)| Event::Forget { but, pruned }),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1_500,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn every_batch_takes_effect_exactly_once_whatever_happens_in_between() {
    let (untold, pruned) = (Cell::new(0), Cell::new(0));
    proptest!(config(), |(events in prop::collection::vec(event(), 0..250))| {
        let mut world = World::new();
        world.crash();
        for event in &events {
            world.apply(event);
            prop_assert!(world.chain.effects.values().all(|n| *n == 1));
        }
        world.calm();
        // Every byte that ever left comes back, for ever: nothing takes effect a second time.
        for i in 0..world.chain.seen.len() {
            world.now += 5_000;
            world.chain.block(world.now, Proposer::Honest, false, Some(i));
        }
        prop_assert_eq!(world.closed.len() as u64, BATCHES);
        prop_assert_eq!(world.chain.effects.len() as u64, BATCHES);
        prop_assert!(world.chain.effects.values().all(|n| *n == 1));
        prop_assert_eq!(world.state.outstanding(), None);
        untold.set(untold.get() + world.untold);
        pruned.set(pruned.get() + world.pruned);
    });
    assert!(untold.get() > 0, "no result was ever gone");
    assert!(pruned.get() > 0, "no block was ever pruned");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_state_round_trips_through_serde(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::new();
        world.crash();
        for event in &events {
            world.apply(event);
            let text = serde_json::to_string(&world.state).unwrap();
            let back: State = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.job(), world.state.job());
            prop_assert_eq!(back.account(), world.state.account());
        }
    }
}
