//! Arbitrary messages in arbitrary order: nothing panics, every invariant holds after each of them, and events alone
//! tell what the store says.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod follow;
mod garbage;
mod invariants;
mod message;
mod step;
mod world;

use std::collections::BTreeSet;

use hpc_schema::registry::{Event, ExecuteMsg, QueryMsg};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::world::{Beginning, World};

proptest! {
    #![proptest_config(common::cases(48))]

    #[test]
    fn any_history_keeps_every_invariant_and_is_told_by_its_events(
        steps in prop::collection::vec((step::step(), message::query()), 1..60),
        tight: bool,
        large in prop::bool::weighted(0.2),
    ) {
        let mut world = World::new(Beginning { tight, large });
        for (step, query) in &steps {
            world.step(step);
            world.check();
            world.ask(query);
        }
    }
}

/// The names of the messages that an arbitrary one can be.
fn reached<T: serde::Serialize + std::fmt::Debug>(strategy: &impl Strategy<Value = T>) -> BTreeSet<String> {
    let mut runner = TestRunner::deterministic();
    (0..2_000)
        .map(|_| serde_json::to_value(strategy.new_tree(&mut runner).unwrap().current()).unwrap())
        .map(|msg| msg.as_object().unwrap().keys().next().unwrap().clone())
        .collect()
}

#[test]
fn histories_know_every_message_and_every_query() {
    assert_eq!(reached(&message::execute()), message::variants::<ExecuteMsg>());
    assert_eq!(reached(&message::query()), message::variants::<QueryMsg>());
}

/// A property is worth what its histories come across: some of them must do each thing that the contract can do.
#[test]
fn histories_come_across_every_event_and_every_arrow() {
    let mut runner = TestRunner::deterministic();
    let steps = prop::collection::vec(step::step(), 60);
    let (mut types, mut arrows) = (BTreeSet::new(), BTreeSet::new());
    let wanted = hpc_schema::node::table::arrows(&hpc_schema::node::table::rows())
        .into_iter()
        .map(|t| (t.from, t.to))
        .collect::<BTreeSet<_>>();
    for _ in 0..400 {
        let mut world = World::new(Beginning::default());
        for step in steps.new_tree(&mut runner).unwrap().current() {
            world.step(&step);
        }
        for event in world.heard {
            types.insert(event.ty());
            if let Event::Transition { from, to, .. } = event {
                arrows.insert((from.0, to));
            }
        }
        if types.len() == Event::TYPES.len() && arrows == wanted {
            return;
        }
    }
    panic!(
        "never seen: events {:?}, arrows {:?}",
        Event::TYPES
            .iter()
            .filter(|t| !types.contains(**t))
            .collect::<Vec<_>>(),
        wanted.difference(&arrows).collect::<Vec<_>>()
    );
}

/// What only more nodes than a page holds can lead to.
#[test]
fn large_histories_come_across_second_pages_and_both_cursors() {
    let mut runner = TestRunner::deterministic();
    let steps = prop::collection::vec(step::step(), 60);
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        let mut world = World::new(Beginning {
            tight: false,
            large: true,
        });
        for step in steps.new_tree(&mut runner).unwrap().current() {
            world.step(&step);
            let map = &world.chain.deps.storage.map;
            if map
                .get(&[0x0f, 0, 0, 0, 0][..])
                .is_some_and(|page| *page == [0, 1])
            {
                seen.insert("a sweep of the cluster that goes on at its second page");
            }
            if map.get(&[0x0f][..]).is_some_and(|at| *at == [0, 0, 0, 0, 0, 1]) {
                seen.insert("a sweep of all that goes on at its second page");
            }
            let free = |page: u8| map.keys().any(|k| k.starts_with(&[8, 0, 0, 0, 0, 0, page]));
            if free(0) {
                seen.insert("a free slot of the first page");
            }
            if free(1) {
                seen.insert("a free slot of the second page");
            }
        }
        let several = |e: &Event| matches!(e, Event::Transition { node_id, .. } if node_id.0.len() > 60);
        if world.heard.iter().any(several) {
            seen.insert("one event of a whole page");
        }
        if seen.len() == 5 {
            return;
        }
    }
    panic!("seen: {seen:?}");
}
