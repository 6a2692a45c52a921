//! One message, many fates.

use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{Event, SubmitAnswer};
use hpc_schema::report::batch::ITEM_LEN;
use hpc_schema::report::{Figures, Tag};

use crate::common::actors::{groups, submit_msg};
use crate::common::*;
use crate::{beats, reporting, submit};

#[test]
fn one_bad_signature_never_sinks_the_batch() {
    let (mut chain, mut agents) = reporting(300);
    let mut reports = beats(&chain, &mut agents);
    for at in [3, 299] {
        reports[at].1.signature[10] ^= 1;
        reports[at].1.section = Some(reports[at].0.section.encode());
    }
    let outcomes = outcomes(&submit(&mut chain, &reports), 300);
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let expected = if [3, 299].contains(&i) {
            Err(Code::SignatureInvalid)
        } else {
            Ok(())
        };
        assert_eq!(outcome, expected, "item {i}");
    }
    assert_eq!(chain.node("node-0003").sequence, 1);
    assert_eq!(chain.node("node-0004").sequence, 2);
}

#[test]
fn each_refusal_has_its_code_and_stores_nothing() {
    let (mut chain, mut agents) = reporting(10);
    let now = chain.now();
    let mut reports = beats(&chain, &mut agents);
    let contract = Agent::contract();
    // 0: good. 1: replayed sequence. 2: sequence 0. 3: six minutes behind. 4: two minutes ahead.
    let again = |a: &Agent, sequence, time: u64| {
        let mut a = a.clone();
        a.sequence = sequence;
        a.with_figures(time, HealthStatus::Healthy, &Figures::default())
    };
    reports[1].1 = again(&agents[1], 1, now);
    reports[2].1 = again(&agents[2], 0, now);
    reports[3].1 = again(&agents[3], 2, now - 360);
    reports[4].1 = again(&agents[4], 2, now + 120);
    // 5: more available than there is, with the section that says so.
    agents[5].attach = true;
    let too_much = Figures {
        cores_available: 65,
        ..Figures::default()
    };
    reports[5].1 = agents[5].with_figures(now, HealthStatus::Healthy, &too_much);
    // 6: signed for another chain. 7: for another contract. 8: with another node's key.
    for (at, chain_id, address) in [(6, "other-chain", contract.as_str()), (7, CHAIN_ID, "wasm1other")] {
        let (agent, signed) = &mut reports[at];
        let tag = agent.tag(chain_id, address);
        signed.signature = agent.key.sign(&signed.report.message(&tag)).into();
        signed.section = Some(agent.section.encode());
    }
    reports[8].1.signature = agents[9].sign(reports[8].1.report);
    reports[8].1.section = Some(agents[8].section.encode());
    // 9: the agent has a new section and nobody attached it.
    agents[9].section.gpu_type = "other".to_owned();
    agents[9].attach = false;
    reports[9].1 = agents[9].with_figures(now, HealthStatus::Healthy, &Figures::default());

    let before: Vec<_> = (0..10).map(|i| chain.node(&format!("node-{i:04}"))).collect();
    let outcomes = outcomes(&submit(&mut chain, &reports), 10);
    let expected = [
        Ok(()),
        Err(Code::StaleSequence),
        Err(Code::InvalidSequence),
        Err(Code::TimestampExpired),
        Err(Code::TimestampInFuture),
        Err(Code::InvalidCapacity),
        Err(Code::SignatureInvalid),
        Err(Code::SignatureInvalid),
        Err(Code::SignatureInvalid),
        Err(Code::SectionMissing),
    ];
    assert_eq!(outcomes, expected);
    for (i, node) in before.into_iter().enumerate().skip(1) {
        assert_eq!(chain.node(&format!("node-{i:04}")), node, "node {i}");
    }
}

/// Fault 2: unsigned heartbeats of a node without a key were accepted, whatever they said.
#[test]
fn nothing_unsigned_counts_and_every_figure_of_a_report_is_judged() {
    let (mut chain, mut agents) = reporting(3);
    let now = chain.now();
    let mut unsigned = agents[0].healthy(now);
    unsigned.signature = [0; 64];
    unsigned.section = Some(agents[0].section.encode());
    // A status that is none, and reserved bits, both signed.
    let signed_body = |agent: &mut Agent, flags: u8| {
        let mut signed = agent.healthy(now);
        let mut body = signed.report.body.encode();
        body[0] = flags;
        let report = signed.report;
        let tag = agent.tag(CHAIN_ID, &Agent::contract());
        let message = hpc_schema::report::message(
            &tag,
            report.time,
            report.sequence,
            &body,
            &report.section_digest,
            &report.payload_hash,
        );
        signed.signature = agent.key.sign(&message).into();
        (signed, flags)
    };
    let (no_status, a) = signed_body(&mut agents[1], 0);
    let (reserved, b) = signed_body(&mut agents[2], 0x81);
    let reports = vec![
        (&agents[0], unsigned),
        (&agents[1], no_status),
        (&agents[2], reserved),
    ];
    let mut bytes = groups(reports);
    // The first item carries a section of 2 + len bytes more; patch the two bodies on the wire.
    let section = agents[0].section.encode().len() + 2;
    let body_at = |item: usize| 8 + item * ITEM_LEN + section + 7;
    bytes[0].1[body_at(1)] = a;
    bytes[0].1[body_at(2)] = b;
    let answer: SubmitAnswer = data(&chain.anyone_sends(submit_msg(&bytes)).unwrap());
    let expected = [
        Err(Code::SignatureInvalid),
        Err(Code::InvalidHealth),
        Err(Code::Malformed),
    ];
    assert_eq!(outcomes(&answer, 3), expected);
}

#[test]
fn unknown_clusters_pages_and_slots_and_duplicates_are_named() {
    let (mut chain, mut agents) = reporting(2);
    let report = agents[0].healthy(chain.now());
    for (page, slot, cluster, expected) in [
        (0, 2, CLUSTER, Code::UnknownNode),
        (0, 63, CLUSTER, Code::UnknownNode),
        (1, 0, CLUSTER, Code::UnknownNode),
        (u16::MAX, 0, CLUSTER, Code::UnknownNode),
        (0, 0, "no-such-cluster", Code::UnknownCluster),
    ] {
        let mut elsewhere = agents[0].clone();
        (elsewhere.page, elsewhere.slot) = (page, slot);
        elsewhere.cluster = cluster.to_owned();
        let answer = chain.submit(vec![(&elsewhere, report.clone())]);
        assert_eq!(outcomes(&answer, 1), [Err(expected)], "{cluster} {page} {slot}");
    }
    // Slot 200 can only be written by hand.
    let mut bytes = groups(vec![(&agents[0], report.clone())]);
    bytes[0].1[8] = 200;
    let answer: SubmitAnswer = data(&chain.anyone_sends(submit_msg(&bytes)).unwrap());
    assert_eq!(outcomes(&answer, 1), [Err(Code::UnknownNode)]);

    // The same node twice: in one page group, in two, in two groups of the message. The first counts.
    let second = agents[0].healthy(chain.now());
    let one = groups(vec![(&agents[0], report)]).remove(0);
    let two = groups(vec![(&agents[0], second)]).remove(0);
    let mut in_one = one.1.clone();
    in_one[7] = 2;
    in_one.extend_from_slice(&two.1[8..]);
    let mut in_two = one.1.clone();
    in_two.extend_from_slice(&two.1[5..]);
    let ways = [
        vec![(CLUSTER.to_owned(), in_one)],
        vec![(CLUSTER.to_owned(), in_two)],
        vec![one.clone(), two.clone()],
    ];
    for way in ways {
        let before = chain.deps.storage.clone();
        let answer: SubmitAnswer = data(&chain.anyone_sends(submit_msg(&way)).unwrap());
        assert_eq!(outcomes(&answer, 2), [Ok(()), Err(Code::DuplicateNode)]);
        chain.deps.storage = before;
    }
}

#[test]
fn a_report_of_the_registration_before_is_superseded_by_rotation() {
    let (mut chain, mut agents) = reporting(1);
    let in_flight = agents[0].healthy(chain.now());
    let mut rotated = agents[0].clone();
    let msg = rotated.rotation(&mut chain, crate::common::actors::key_of("second key"));
    rotated.placed(&data(&chain.anyone_sends(msg).unwrap()));
    let answer = chain.submit(vec![(&agents[0], in_flight)]);
    assert_eq!(outcomes(&answer, 1), [Err(Code::SupersededByRotation)]);
    assert_eq!(chain.node("node-0000").state, NodeState::Active);
    assert_eq!(chain.beat(&mut rotated).accepted, 1);
    assert_eq!(chain.node("node-0000").sequence, 1);
}

/// Fault 9, second half: sequence 0 bypassed the protection against replays.
#[test]
fn no_report_counts_twice_and_sequence_zero_never() {
    let (mut chain, mut agents) = reporting(1);
    let report = agents[0].healthy(chain.now());
    assert_eq!(chain.submit(vec![(&agents[0], report.clone())]).accepted, 1);
    let again = chain.submit(vec![(&agents[0], report)]);
    assert_eq!(outcomes(&again, 1), [Err(Code::StaleSequence)]);
    let mut zero = agents[0].clone();
    zero.sequence = 0;
    let report = zero.with_figures(chain.now(), HealthStatus::Healthy, &Figures::default());
    assert_eq!(
        outcomes(&chain.submit(vec![(&zero, report)]), 1),
        [Err(Code::InvalidSequence)]
    );
}

#[test]
fn a_page_that_took_no_report_is_not_written() {
    let (mut chain, mut agents) = reporting(3);
    let mut bad = agents[0].healthy(chain.now());
    bad.signature = [1; 64];
    chain.advance(1_000);
    let before = chain.deps.storage.map.clone();
    let response = chain.anyone_sends(batch(vec![(&agents[0], bad)])).unwrap();
    assert_eq!(
        events(&response),
        [Event::Batch {
            accepted: 0,
            refused: 1
        }]
    );
    assert_eq!(chain.deps.storage.map, before);
}

#[test]
fn the_tag_binds_the_epoch() {
    let (mut chain, agents) = reporting(1);
    let mut later = agents[0].clone();
    later.epoch += 1;
    later.attach = true;
    let report = later.healthy(chain.now());
    assert_ne!(
        later.tag(CHAIN_ID, "c"),
        Tag::from_bytes(*agents[0].tag(CHAIN_ID, "c").as_bytes())
    );
    assert_eq!(
        outcomes(&chain.submit(vec![(&later, report)]), 1),
        [Err(Code::SignatureInvalid)]
    );
}
