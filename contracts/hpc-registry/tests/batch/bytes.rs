//! Bytes that are no batch, or no longer the one that was signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use hpc_schema::registry::SubmitAnswer;
use proptest::prelude::*;
use serde_json::json;

use crate::common::actors::{groups, submit_msg};
use crate::common::*;
use crate::reporting;

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

proptest! {
    #![proptest_config(crate::common::cases(64))]

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
    static SMALL: (crate::common::storage::MeteredStorage, u64, Vec<Agent>) = {
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
