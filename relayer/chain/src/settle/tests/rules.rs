//! Each rule of settlement by itself.

use crate::code::Verdict;
use crate::hash::TxHash;
use crate::settle::*;

const NOW: u64 = 1_700_000_000_000;
const E0: EndpointId = EndpointId(0);
const E1: EndpointId = EndpointId(1);
const BATCH: BatchId = BatchId(7);

struct Driver {
    state: State,
    now: u64,
}

impl Driver {
    fn new() -> Self {
        Self {
            state: State::default(),
            now: NOW,
        }
    }

    fn feed(&mut self, input: Input) -> Vec<Action> {
        step(&mut self.state, &Config::default(), self.now, input)
    }

    fn head(&mut self, endpoint: EndpointId, height: u64) -> Vec<Action> {
        let block_time_ms = self.now;
        self.feed(Input::Head {
            endpoint,
            height,
            block_time_ms,
        })
    }

    fn account(&mut self, height: u64, sequence: u64) -> Vec<Action> {
        self.feed(Input::Account {
            height,
            account_number: u64::MAX,
            sequence,
        })
    }

    fn check_tx(&mut self, endpoint: EndpointId, verdict: Verdict) -> Vec<Action> {
        let hash = self.hash();
        let answer = CheckTx::Answered {
            verdict,
            code: 1,
            codespace: "sdk".to_owned(),
            log: String::new(),
        };
        self.feed(Input::CheckTx {
            endpoint,
            hash,
            answer,
        })
    }

    fn hash(&self) -> TxHash {
        self.state.outstanding().unwrap().hash
    }

    /// A transaction with sequence 5, signed at height 100 and accepted: T is 118 (90 s of 5 s blocks).
    fn sent() -> Self {
        let mut d = Self::new();
        d.head(E0, 100);
        assert_eq!(d.feed(Input::Submit { batch: BATCH }), [Action::QueryAccount]);
        let actions = d.account(100, 5);
        let [Action::Sign(request)] = actions[..] else {
            panic!("{actions:?}")
        };
        let actions = d.feed(Input::Signed(SignedTx {
            request,
            bytes: b"tx".to_vec(),
        }));
        let hash = TxHash::of(b"tx");
        assert_eq!(
            actions,
            [
                Action::Persist,
                Action::Broadcast {
                    hash,
                    endpoints: vec![E0]
                }
            ]
        );
        assert_eq!(d.check_tx(E0, Verdict::Accepted), [Action::Persist]);
        assert_eq!(d.state.outstanding().unwrap().timeout_height, 118);
        d
    }

    fn restart(&mut self) -> Vec<Action> {
        let text = serde_json::to_string(&self.state).unwrap();
        self.state = serde_json::from_str(&text).unwrap();
        self.feed(Input::Restarted)
    }

    fn inclusion(&self, height: u64, code: u32) -> Inclusion {
        Inclusion {
            hash: self.hash(),
            height,
            code,
            codespace: String::new(),
            log: String::new(),
            gas_used: 0,
        }
    }
}

fn end(actions: &[Action]) -> Option<&End> {
    actions.iter().find_map(|a| match a {
        Action::Finished { end, .. } => Some(end),
        _ => None,
    })
}

/// All of these blocks were read, and it is in none of them.
fn found_nothing(hash: TxHash, from: u64, to: u64) -> Input {
    Input::Scanned {
        hash,
        from,
        to,
        inclusions: vec![],
        gone: vec![],
        unread: false,
    }
}

#[test]
fn it_is_dead_only_by_an_account_answer_of_its_own_timeout_height_with_its_sequence_unused() {
    let mut d = Driver::sent();
    d.head(E0, 130);
    assert_eq!(
        end(&d.account(117, 5)),
        None,
        "one block too early, whatever the head says"
    );
    assert_eq!(
        end(&d.feed(Input::NotFound {
            hash: TxHash::of(b"tx")
        })),
        None
    );
    let actions = d.account(118, 5);
    assert_eq!(actions[0], Action::Persist);
    assert_eq!(end(&actions), Some(&End::Expired { height: 118 }));
}

#[test]
fn a_replacement_reuses_the_sequence_of_the_dead() {
    let mut d = Driver::sent();
    d.head(E0, 119);
    d.account(119, 5);
    assert_eq!(d.feed(Input::Settled { batch: BATCH }), [Action::Persist]);
    d.feed(Input::Submit { batch: BatchId(8) });
    let actions = d.account(119, 5);
    let [Action::Sign(request)] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((request.sequence, request.batch), (5, BatchId(8)));
}

#[test]
fn an_answer_of_an_endpoint_that_is_behind_is_not_looked_at() {
    let mut d = Driver::sent();
    d.account(117, 5);
    assert!(d.account(90, 4).is_empty());
    assert_eq!(d.state.account().unwrap().sequence, 5);
}

#[test]
fn success_in_a_block_ends_it_and_gives_the_next_sequence() {
    let mut d = Driver::sent();
    let found = d.inclusion(103, 0);
    let actions = d.feed(Input::Found(found.clone()));
    assert_eq!(
        actions,
        [
            Action::Persist,
            Action::Finished {
                batch: BATCH,
                end: End::Included(found)
            }
        ]
    );
    let account = d.state.account().unwrap();
    assert_eq!((account.sequence, account.since), (6, 103));
}

#[test]
fn a_result_that_left_the_sequence_unused_is_no_end_before_the_timeout_height() {
    let mut d = Driver::sent();
    let refused = d.inclusion(103, 30);
    let actions = d.feed(Input::Found(refused.clone()));
    assert_eq!(actions, [Action::Persist, Action::QueryAccount]);
    assert_eq!(end(&d.account(104, 5)), None);
    assert_eq!(end(&d.account(118, 5)), Some(&End::Failed(refused)));
}

#[test]
fn a_refused_inclusion_does_not_hide_a_later_success() {
    let mut d = Driver::sent();
    let refused = d.inclusion(103, 13);
    d.feed(Input::Found(refused));
    let found = d.inclusion(106, 0);
    assert_eq!(
        end(&d.feed(Input::Found(found.clone()))),
        Some(&End::Included(found))
    );
}

#[test]
fn a_used_sequence_is_judged_by_the_blocks_since_it_was_signed() {
    let mut d = Driver::sent();
    let actions = d.account(110, 6);
    let hash = d.hash();
    assert!(
        actions.contains(&Action::ScanBlocks {
            hash,
            from: 101,
            to: 110
        }),
        "{actions:?}"
    );

    let mut executed = Driver {
        state: d.state.clone(),
        now: d.now,
    };
    let failed = executed.inclusion(105, 5);
    let scanned = Input::Scanned {
        hash,
        from: 101,
        to: 110,
        inclusions: vec![failed.clone()],
        gone: vec![],
        unread: false,
    };
    assert_eq!(end(&executed.feed(scanned)), Some(&End::Failed(failed)));

    let short = found_nothing(hash, 102, 110);
    assert!(
        d.feed(short).is_empty(),
        "a scan that leaves a block out decides nothing"
    );
    let actions = d.feed(found_nothing(hash, 101, 110));
    assert_eq!(
        actions,
        [
            Action::Alarm(Alarm::ForeignTransaction { sequence: 5 }),
            Action::Persist,
            Action::QueryNodeSequences {
                batch: BATCH,
                height: 110,
                overtaken: true,
            },
        ]
    );
}

#[test]
fn what_another_process_did_to_it_is_known_after_a_restart_and_an_older_state_can_be_read() {
    let mut d = Driver::sent();
    d.account(110, 6);
    let hash = d.hash();
    d.feed(found_nothing(hash, 101, 110));
    let asks = |overtaken| {
        [Action::QueryNodeSequences {
            batch: BATCH,
            height: 110,
            overtaken,
        }]
    };
    assert_eq!(d.restart(), asks(true));
    let text = serde_json::to_string(&d.state).unwrap();
    let older = text.replace(r#","overtaken":true"#, "");
    assert_ne!(older, text);
    d.state = serde_json::from_str(&older).unwrap();
    assert_eq!(d.feed(Input::Restarted), asks(false));
}

#[test]
fn of_a_transaction_in_a_block_whose_results_are_gone_the_contract_is_asked_once_and_nobody_else_is_blamed() {
    let mut d = Driver::sent();
    d.account(110, 6);
    let hash = d.hash();
    let read = |inclusions, gone, unread| Input::Scanned {
        hash,
        from: 101,
        to: 110,
        inclusions,
        gone,
        unread,
    };
    let scanned = |inclusions, gone| read(inclusions, gone, false);
    let asks = [
        Action::Persist,
        Action::QueryNodeSequences {
            batch: BATCH,
            height: 110,
            overtaken: false,
        },
    ];
    let like = |d: &Driver| Driver {
        state: d.state.clone(),
        now: d.now,
    };
    let mut lost = like(&d);
    assert_eq!(lost.feed(scanned(vec![], vec![105])), asks);
    assert!(lost.head(E0, 111).is_empty(), "its blocks are not read again");
    // A block that is pruned may have it, whatever the others have.
    for failed in [vec![], vec![d.inclusion(107, 5)]] {
        assert_eq!(like(&d).feed(read(failed, vec![], true)), asks);
    }
    let found = d.inclusion(107, 0);
    let actions = like(&d).feed(read(vec![found.clone()], vec![], true));
    assert_eq!(end(&actions), Some(&End::Included(found)));
    // What failed in another block says nothing of that one, and what took effect all.
    let mut twice = like(&d);
    let failed = twice.inclusion(107, 5);
    assert_eq!(twice.feed(scanned(vec![failed], vec![105])), asks);
    let mut good = like(&d);
    let found = good.inclusion(107, 0);
    let actions = good.feed(scanned(vec![found.clone()], vec![105]));
    assert_eq!(end(&actions), Some(&End::Included(found)));
    // Its result there was seen before.
    let refused = d.inclusion(105, 5);
    d.feed(Input::Found(refused.clone()));
    let actions = d.feed(scanned(vec![], vec![105]));
    assert_eq!(end(&actions), Some(&End::Failed(refused)));
}

#[test]
fn after_a_long_downtime_the_scan_ends_at_the_timeout_height_and_not_at_the_present() {
    let mut d = Driver::sent();
    d.restart();
    let hash = d.hash();
    let scan = Action::ScanBlocks {
        hash,
        from: 101,
        to: 118,
    };
    assert!(d.account(1_000_000, 9).contains(&scan));
    assert!(
        d.head(E0, 1_000_000).contains(&scan),
        "and so when it is asked again"
    );
    let short = found_nothing(hash, 101, 117);
    assert!(d.feed(short).is_empty(), "T itself belongs to it");
    let actions = d.feed(found_nothing(hash, 101, 118));
    assert_eq!(
        actions.last(),
        Some(&Action::QueryNodeSequences {
            batch: BATCH,
            height: 1_000_000,
            overtaken: true,
        }),
        "what is unknown is asked at the height that showed the sequence used"
    );
}

#[test]
fn the_same_bytes_go_to_every_endpoint_again_every_few_blocks() {
    let mut d = Driver::sent();
    let hash = d.hash();
    let sends = |actions: &[Action]| -> Vec<Vec<EndpointId>> {
        let sent = |a: &Action| match a {
            Action::Broadcast { hash: h, endpoints } if *h == hash => Some(endpoints.clone()),
            _ => None,
        };
        actions.iter().filter_map(sent).collect()
    };
    assert_eq!(
        sends(&d.head(E1, 100)),
        [vec![E1]],
        "an endpoint that shows up late gets them too"
    );
    assert!(sends(&d.head(E0, 101)).is_empty());
    assert!(sends(&d.head(E0, 102)).is_empty());
    assert_eq!(sends(&d.head(E0, 103)), [vec![E0]]);
    assert_eq!(sends(&d.head(E1, 103)), [vec![E1]]);
    assert!(
        sends(&d.head(E0, 118)).is_empty(),
        "at T no block can take them any more"
    );
}

#[test]
fn already_in_cache_proves_nothing() {
    let mut d = Driver::sent();
    assert!(d.check_tx(E0, Verdict::AlreadyInCache).is_empty());
    assert!(d.state.outstanding().is_some());
    assert_eq!(end(&d.account(118, 5)), Some(&End::Expired { height: 118 }));
}

#[test]
fn expected_above_got_looks_for_our_own_transaction_first() {
    let mut d = Driver::sent();
    let hash = d.hash();
    let ahead = Verdict::WrongSequence {
        expected: Some(6),
        got: Some(5),
    };
    assert_eq!(
        d.check_tx(E0, ahead),
        [Action::QueryTx { hash }, Action::QueryAccount]
    );
}

#[test]
fn expected_below_got_waits_and_reads_the_account_again_after_five_blocks() {
    let mut d = Driver::sent();
    let behind = Verdict::WrongSequence {
        expected: Some(4),
        got: Some(5),
    };
    assert!(d.check_tx(E0, behind).is_empty());
    let hash = d.hash();
    let again = Action::Broadcast {
        hash,
        endpoints: vec![E0],
    };
    assert_eq!(
        d.head(E0, 101),
        [Action::QueryTx { hash }, again],
        "the endpoint's next block is soon enough"
    );
    for height in 102..105 {
        assert!(!d.head(E0, height).contains(&Action::QueryAccount), "{height}");
    }
    assert!(d.head(E0, 105).contains(&Action::QueryAccount));
}

#[test]
fn bytes_are_not_sent_to_an_endpoint_below_the_height_where_the_sequence_was_seen() {
    let mut d = Driver::new();
    d.head(E0, 100);
    d.feed(Input::Submit { batch: BATCH });
    let actions = d.account(101, 5);
    let [Action::Sign(request)] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        d.feed(Input::Signed(SignedTx {
            request,
            bytes: b"tx".to_vec()
        })),
        [Action::Persist]
    );
    let hash = d.hash();
    assert!(d.head(E0, 101).contains(&Action::Broadcast {
        hash,
        endpoints: vec![E0]
    }));
}

#[test]
fn a_halted_chain_expires_nothing_and_signs_nothing() {
    let mut d = Driver::sent();
    d.head(E0, 118);
    d.now += 30_000;
    assert_eq!(
        d.feed(Input::Tick),
        [Action::Alarm(Alarm::Halted { height: Some(118) })]
    );
    assert_eq!(d.state.condition(), Condition::Halted);
    assert!(d.account(118, 5).is_empty());
    let actions = d.head(E0, 119);
    assert!(actions.contains(&Action::Alarm(Alarm::Resumed { height: 119 })));
    assert!(
        actions.contains(&Action::QueryAccount),
        "the proof is asked for again"
    );
    assert_eq!(end(&d.account(119, 5)), Some(&End::Expired { height: 119 }));

    let mut idle = Driver::new();
    idle.head(E0, 100);
    idle.now += 31_000;
    idle.feed(Input::Tick);
    idle.feed(Input::Submit { batch: BATCH });
    assert!(idle.account(100, 5).is_empty(), "nothing new is signed");
}

#[test]
fn after_a_halt_nothing_is_sent_until_a_block_carries_a_time_near_to_ours() {
    let mut d = Driver::sent();
    d.now += 3_600_000;
    d.feed(Input::Tick);
    // The first block after a halt carries the old time.
    let old = Input::Head {
        endpoint: E0,
        height: 104,
        block_time_ms: NOW,
    };
    let actions = d.feed(old);
    assert!(
        !actions.iter().any(|a| matches!(a, Action::Broadcast { .. })),
        "{actions:?}"
    );
    assert_eq!(d.state.condition(), Condition::CatchingUp);
    let actions = d.head(E0, 105);
    assert!(
        actions.iter().any(|a| matches!(a, Action::Broadcast { .. })),
        "{actions:?}"
    );
}

#[test]
fn the_timeout_height_is_ninety_seconds_of_blocks_and_at_least_three() {
    for (block_ms, blocks) in [(1_000, 90), (5_000, 18), (7_000, 13), (60_000, 3), (1, 900)] {
        let mut d = Driver::new();
        for height in 1..10 {
            d.now += block_ms;
            d.head(E0, height);
        }
        d.feed(Input::Submit { batch: BATCH });
        let actions = d.account(9, 0);
        let [Action::Sign(request)] = actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(request.timeout_height, 9 + blocks, "{block_ms} ms");
    }
}

#[test]
fn a_refusal_by_check_tx_is_told_once_and_ends_nothing() {
    let mut d = Driver::sent();
    let told = |a: &[Action]| matches!(a, [Action::Alarm(Alarm::Refused { .. })]);
    assert!(told(&d.check_tx(E0, Verdict::InsufficientFee)));
    assert!(d.check_tx(E0, Verdict::InsufficientFee).is_empty());
    assert!(d.state.outstanding().is_some());
}

#[test]
fn a_restart_resumes_what_was_signed_and_forgets_what_was_not() {
    let mut d = Driver::sent();
    let hash = d.hash();
    assert_eq!(d.restart(), [Action::QueryTx { hash }, Action::QueryAccount]);
    assert!(d.head(E0, 101).contains(&Action::Broadcast {
        hash,
        endpoints: vec![E0]
    }));

    let mut planned = Driver::new();
    planned.head(E0, 100);
    planned.feed(Input::Submit { batch: BATCH });
    planned.account(100, 5);
    assert!(planned.restart().is_empty());
    assert!(planned.state.is_idle());
}

#[test]
fn an_end_is_told_again_after_a_restart_until_it_is_settled() {
    let mut d = Driver::sent();
    let found = d.inclusion(103, 0);
    d.feed(Input::Found(found.clone()));
    let told = [Action::Finished {
        batch: BATCH,
        end: End::Included(found),
    }];
    assert_eq!(d.restart(), told);
    assert_eq!(d.restart(), told);
    assert_eq!(d.feed(Input::Settled { batch: BATCH }), [Action::Persist]);
    assert!(d.restart().is_empty());
}

#[test]
fn a_second_batch_is_not_taken_while_one_is_under_way() {
    let mut d = Driver::sent();
    let other = BatchId(9);
    assert_eq!(
        d.feed(Input::Submit { batch: other }),
        [Action::Busy { batch: other }]
    );
}

#[test]
fn an_account_that_does_not_exist_at_the_timeout_height_proves_death_too() {
    let mut d = Driver::sent();
    let actions = d.feed(Input::AccountUnknown { height: 0 });
    assert_eq!(actions, [Action::Alarm(Alarm::AccountUnknown)]);
    assert_eq!(
        end(&d.feed(Input::AccountUnknown { height: 118 })),
        Some(&End::Expired { height: 118 })
    );
}
