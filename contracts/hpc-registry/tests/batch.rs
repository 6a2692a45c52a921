//! Batches: every item has its own outcome, whatever bytes come.
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

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::actors::{Signed, groups, submit_msg};
use common::*;
use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{Event, SubmitAnswer};
use hpc_schema::report::batch::ITEM_LEN;
use hpc_schema::report::{Figures, Report, Tag};
use proptest::prelude::*;
use serde_json::json;

fn reporting(n: usize) -> (Chain, Vec<Agent>) {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, n);
    let now = chain.now();
    let reports: Vec<_> = agents.iter_mut().map(|a| (a.clone(), a.healthy(now))).collect();
    let answer = chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    assert_eq!(answer.accepted as usize, n);
    chain.advance(30);
    (chain, agents)
}

fn beats(chain: &Chain, agents: &mut [Agent]) -> Vec<(Agent, Signed)> {
    agents
        .iter_mut()
        .map(|a| (a.clone(), a.healthy(chain.now())))
        .collect()
}

fn submit(chain: &mut Chain, reports: &[(Agent, Signed)]) -> SubmitAnswer {
    chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect())
}

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
fn a_first_report_without_its_section_asks_for_it() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    agent.attach = false;
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::SectionMissing)]);
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    // Unchanged it need not come again; changed it must come once.
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    agent.section.jobs = vec!["slurm-1".to_owned()];
    agent.section.jobs_total = 1;
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::SectionMissing)]);
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    assert_eq!(chain.node("node-0001").jobs.count, 1);
}

#[test]
fn a_late_report_over_an_unseen_section_is_stale_and_not_asked_for_it() {
    let (mut chain, mut agents) = reporting(1);
    let before = agents[0].clone();
    agents[0].section.gpu_type = "other".to_owned();
    let mut late = agents[0].report(chain.now(), HealthStatus::Healthy, 0);
    late.section = None;
    agents[0].section = before.section;
    agents[0].attach = true;
    assert_eq!(chain.beat(&mut agents[0]).accepted, 1);
    // Two sequences are below the one on record; with its section the second would be no better off.
    let answer = chain.submit(vec![(&agents[0], late)]);
    assert_eq!(outcomes(&answer, 1), [Err(Code::StaleSequence)]);
}

#[test]
fn a_section_that_cannot_be_read_refuses_its_item_alone() {
    let (mut chain, mut agents) = reporting(3);
    let now = chain.now();
    let mut reports = beats(&chain, &mut agents);
    for (at, section) in [(0, vec![1, 2, 3]), (1, vec![9])] {
        let report = Report {
            section_digest: hpc_schema::report::section_digest(&section),
            ..reports[at].1.report
        };
        reports[at].1 = Signed {
            signature: agents[at].sign(report),
            report,
            section: Some(section),
        };
    }
    let expected = [Err(Code::Malformed), Err(Code::UnsupportedVersion), Ok(())];
    assert_eq!(outcomes(&submit(&mut chain, &reports), 3), expected);
    assert_eq!(chain.node("node-0000").last_heartbeat.unwrap().0, now - 30);
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
fn bytes_that_cannot_be_read_to_their_end_end_their_group_and_no_other() {
    let (mut chain, mut agents) = reporting(2);
    let first = agents[0].healthy(chain.now());
    let second = agents[1].healthy(chain.now());
    let whole = groups(vec![(&agents[0], first)]).remove(0);
    let other = groups(vec![(&agents[1], second)]).remove(0);
    let mut truncated = whole.clone();
    truncated.1.pop();
    let mut trailing = whole.clone();
    trailing.1.push(0);
    let mut version = whole.clone();
    version.1[0] = 2;
    for (group, accepted, code) in [
        (truncated, 1, Code::Malformed),
        (trailing, 2, Code::Malformed),
        (version.clone(), 1, Code::UnsupportedVersion),
        ((CLUSTER.to_owned(), vec![1, 0, 0, 0, 0]), 1, Code::InvalidBatch),
        ((CLUSTER.to_owned(), vec![]), 1, Code::Malformed),
    ] {
        let before = chain.deps.storage.clone();
        let msg = submit_msg(&[group, other.clone()]);
        let answer: SubmitAnswer = data(&chain.anyone_sends(msg).unwrap());
        assert_eq!(
            (answer.accepted, answer.bad_groups),
            (accepted, vec![(0, code.number())])
        );
        chain.deps.storage = before;
    }
    // A message of which nothing can be read is refused as a whole.
    assert_eq!(
        code(chain.anyone_sends(submit_msg(&[version]))),
        Code::UnsupportedVersion
    );
    assert_eq!(code(chain.anyone_sends(submit_msg(&[]))), Code::InvalidBatch);
    let broken = json!({"submit_reports": {"groups": [{"cluster_id": CLUSTER, "reports": "%%%"}]}});
    assert_eq!(code(chain.anyone_sends(broken)), Code::Malformed);
}

#[test]
fn a_message_above_the_limit_is_refused_whole() {
    let (mut chain, mut agents) = reporting(1);
    let one = groups(vec![(&agents[0], agents[0].clone().healthy(T0))]).remove(0);
    let many = vec![one; 1_025];
    assert_eq!(code(chain.anyone_sends(submit_msg(&many))), Code::InvalidBatch);
    chain.beat(&mut agents[0]);
}

#[test]
fn a_report_of_the_registration_before_is_superseded_by_rotation() {
    let (mut chain, mut agents) = reporting(1);
    let in_flight = agents[0].healthy(chain.now());
    let mut rotated = agents[0].clone();
    let msg = rotated.rotation(&mut chain, common::actors::key_of("second key"));
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
fn job_ids_are_shown_as_the_cluster_allows() {
    let (mut chain, mut agents) = reporting(1);
    agents[0].section.jobs = vec!["slurm-12345".to_owned()];
    agents[0].section.jobs_total = 2;
    agents[0].attach = true;
    let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
    chain.submit(vec![(&agents[0], report)]);
    let jobs = chain.node("node-0000").jobs;
    assert_eq!(
        (jobs.count, jobs.active_job_ids.len(), jobs.running),
        (2, 0, true)
    );
    chain
        .provider_sends(json!({"update_cluster": {"cluster_id": CLUSTER, "job_ids": "plain"}}))
        .unwrap();
    // Sent while none were allowed: a later setting does not bring it out.
    assert_eq!(chain.node("node-0000").jobs.active_job_ids, Vec::<String>::new());
    let stored = |chain: &Chain| {
        let sections = chain.deps.storage.map.iter().filter(|(k, _)| k[0] == 0x05);
        sections
            .map(|(_, v)| String::from_utf8_lossy(v).into_owned())
            .collect::<String>()
    };
    assert!(!stored(&chain).contains("slurm"));

    let set = |chain: &mut Chain, setting: &str| {
        let msg = json!({"update_cluster": {"cluster_id": CLUSTER, "job_ids": setting}});
        chain.provider_sends(msg).unwrap();
    };
    let mut send = |chain: &mut Chain, job: &str| {
        chain.advance(30);
        agents[0].section.jobs = vec![job.to_owned()];
        agents[0].attach = true;
        let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
        assert_eq!(chain.submit(vec![(&agents[0], report)]).accepted, 1);
        // The digest on record is that of what was signed: the next report needs no section.
        chain.advance(30);
        let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
        assert_eq!(chain.submit(vec![(&agents[0], report)]).accepted, 1);
    };
    let shown = |chain: &Chain| chain.node("node-0000").jobs.active_job_ids;
    send(&mut chain, "slurm-2");
    assert_eq!(shown(&chain), ["slurm-2"]);
    let hashed = |id: &str| hpc_schema::report::hashed_job_id(&CLUSTER.parse().unwrap(), id);
    set(&mut chain, "hashed");
    assert_eq!(shown(&chain), [hashed("slurm-2")]);
    // The agent has not heard of it yet: its node is not stranded, and the id does not get on record.
    send(&mut chain, "slurm-3");
    assert_eq!(shown(&chain), [hashed("slurm-3")]);
    assert!(!stored(&chain).contains("slurm"));
    send(&mut chain, &hashed("slurm-4"));
    assert_eq!(shown(&chain), [hashed("slurm-4")]);
    set(&mut chain, "none");
    assert_eq!(shown(&chain), Vec::<String>::new());
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

proptest! {
    #![proptest_config(common::cases(64))]

    #[test]
    fn arbitrary_batch_bytes_never_panic_and_change_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..600), v1: bool
    ) {
        let (mut chain, _) = small();
        let mut bytes = bytes;
        if let (true, Some(first)) = (v1, bytes.first_mut()) {
            *first = 1;
        }
        let before = chain.deps.storage.map.clone();
        let msg = json!({"submit_reports": {"groups": [
            {"cluster_id": CLUSTER, "reports": STANDARD.encode(&bytes)}]}});
        if let Ok(response) = chain.anyone_sends(msg) {
            prop_assert_eq!(data::<SubmitAnswer>(&response).accepted, 0);
        }
        prop_assert_eq!(&chain.deps.storage.map, &before);
    }

    #[test]
    fn a_flipped_bit_anywhere_never_lets_a_changed_report_in(at: prop::sample::Index, bit in 0u8..8) {
        let (mut chain, mut agents) = small();
        let before = chain.node("node-0000");
        agents[0].attach = true;
        let report = agents[0].healthy(chain.now());
        let mut bytes = groups(vec![(&agents[0], report)]);
        let at = at.index(bytes[0].1.len());
        bytes[0].1[at] ^= 1 << bit;
        let outcome = chain.anyone_sends(submit_msg(&bytes));
        // Framing is nobody's word: a larger count of the group, or the bit that says that the section follows when it
        // is the one on record. The report itself is whole, what stands behind it cannot be read.
        let framing = at == 7 && (1..=64).contains(&bytes[0].1[7]) || (at, bit) == (15, 4);
        if framing {
            let answer: SubmitAnswer = data(&outcome.unwrap());
            prop_assert_eq!((answer.accepted, answer.bad_groups.len()), (1, 1));
            return Ok(());
        }
        if let Ok(response) = outcome {
            let answer: SubmitAnswer = data(&response);
            prop_assert_eq!(answer.accepted, 0, "byte {} bit {}", at, bit);
        }
        prop_assert_eq!(chain.node("node-0000"), before);
    }
}

thread_local! {
    /// One chain for all cases of the properties above.
    static SMALL: (common::storage::MeteredStorage, u64, Vec<Agent>) = {
        let (chain, agents) = reporting(3);
        let now = chain.now();
        (chain.deps.storage, now, agents)
    };
}

fn small() -> (Chain, Vec<Agent>) {
    SMALL.with(|(storage, now, agents)| {
        let mut chain = Chain::bare();
        chain.deps.storage = storage.clone();
        chain.advance(now - T0);
        (chain, agents.clone())
    })
}
