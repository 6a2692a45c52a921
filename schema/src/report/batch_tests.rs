use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::report::wire::tests::any_report;

type Owned = ((u16, u8), Report, Vec<u8>, Option<Vec<u8>>);

fn any_batch() -> impl Strategy<Value = Vec<Owned>> {
    let item = (
        any_report(),
        0u32..65_000,
        prop::collection::vec(any::<u8>(), 64),
        { prop::option::weighted(0.2, prop::collection::vec(any::<u8>(), 0..80)) },
    );
    prop::collection::btree_map((0u16..5, 0u8..PAGE_SLOTS), item, 1..100).prop_map(|map: BTreeMap<_, _>| {
        map.into_iter()
            .map(|(at, (mut report, offset, signature, section))| {
                report.time = 1_700_000_000 + offset;
                (at, report, signature, section)
            })
            .collect()
    })
}

fn outgoing(owned: &[Owned]) -> Vec<Outgoing<'_>> {
    owned
        .iter()
        .map(|((page, slot), report, signature, section)| Outgoing {
            page: *page,
            slot: *slot,
            report,
            signature: signature.as_slice().try_into().unwrap(),
            section: section.as_deref(),
        })
        .collect()
}

proptest! {
    #[test]
    fn batches_survive_the_round_trip(owned in any_batch()) {
        let bytes = encode(&outgoing(&owned)).unwrap();
        let items: Vec<_> = decode(&bytes).unwrap().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(items.len(), owned.len());
        for (item, ((page, slot), report, signature, section)) in items.iter().zip(&owned) {
            prop_assert_eq!((item.page, item.slot, item.order), (*page, *slot, None));
            prop_assert_eq!((item.sequence, item.time), (report.sequence, report.time));
            prop_assert_eq!(item.body, report.body.encode());
            prop_assert_eq!(item.payload_hash, &report.payload_hash);
            prop_assert_eq!(&item.signature[..], &signature[..]);
            prop_assert_eq!(item.section, section.as_deref());
        }
    }

    #[test]
    fn every_truncation_ends_in_an_error(owned in any_batch(), cut: prop::sample::Index) {
        let bytes = encode(&outgoing(&owned)).unwrap();
        let boundaries = group_ends(&owned);
        let len = cut.index(bytes.len());
        let ends_well = decode(&bytes[..len]).is_ok_and(|items| items.into_iter().all(|i| i.is_ok()));
        // A cut between two groups leaves a shorter, valid batch.
        prop_assert_eq!(ends_well, boundaries.contains(&len));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_end(mut bytes in prop::collection::vec(any::<u8>(), 0..2_000), v1: bool) {
        if let (true, Some(first)) = (v1, bytes.first_mut()) {
            *first = 1;
        }
        if let Ok(items) = decode(&bytes) {
            prop_assert!(items.count() <= bytes.len() / ITEM_LEN + 1);
        }
    }
}

fn group_ends(owned: &[Owned]) -> Vec<usize> {
    let mut at = 5;
    owned
        .chunk_by(|a, b| a.0.0 == b.0.0)
        .map(|group| {
            at += 3;
            for (_, _, _, section) in group {
                at += ITEM_LEN + section.as_ref().map_or(0, |s| 2 + s.len());
            }
            at
        })
        .collect()
}

fn one(report: &Report, page: u16, slot: u8) -> Outgoing<'_> {
    Outgoing {
        page,
        slot,
        report,
        signature: &[7; 64],
        section: None,
    }
}

fn sample() -> Report {
    let body = crate::report::Body::saturating(crate::node::HealthStatus::Healthy, &Default::default());
    Report {
        time: 1_000,
        sequence: 1,
        body,
        section_digest: [0; 16],
        payload_hash: [1; 32],
    }
}

#[test]
fn an_item_is_117_bytes() {
    let report = sample();
    assert_eq!(ITEM_LEN, 117);
    assert_eq!(encode(&[one(&report, 0, 0)]).unwrap().len(), 5 + 3 + ITEM_LEN);
}

#[test]
fn order_times_and_sections_are_checked_when_written() {
    let report = sample();
    let late = Report {
        time: 1_000 + 65_536,
        ..report
    };
    assert_eq!(encode(&[]), Err(EncodeError::Empty));
    for (a, b) in [((0, 1), (0, 1)), ((0, 2), (0, 1)), ((1, 0), (0, 5))] {
        assert_eq!(
            encode(&[one(&report, a.0, a.1), one(&report, b.0, b.1)]),
            Err(EncodeError::Order { page: b.0, slot: b.1 })
        );
    }
    assert_eq!(
        encode(&[one(&report, 0, 64)]),
        Err(EncodeError::Order { page: 0, slot: 64 })
    );
    assert_eq!(
        encode(&[one(&report, 0, 1), one(&late, 0, 2)]),
        Err(EncodeError::Span { time: late.time })
    );
    let section = vec![0; MAX_SECTION + 1];
    assert_eq!(
        encode(&[Outgoing {
            section: Some(&section),
            ..one(&report, 0, 1)
        }]),
        Err(EncodeError::Section { len: 4097 })
    );
}

#[test]
fn repeated_and_falling_slots_are_marked_on_their_item_alone() {
    let report = sample();
    let mut bytes = encode(&[one(&report, 0, 4), one(&report, 0, 5), one(&report, 0, 6)]).unwrap();
    for (slot, expected) in [(4, Code::DuplicateNode), (3, Code::Malformed)] {
        bytes[5 + 3 + ITEM_LEN] = slot;
        let orders: Vec<_> = decode(&bytes).unwrap().map(|i| i.unwrap().order).collect();
        assert_eq!(orders, [None, Some(expected), None]);
    }
}

#[test]
fn heads_are_checked() {
    assert_eq!(decode(&[]).unwrap_err(), Code::Malformed);
    assert_eq!(decode(&[2, 0, 0, 0, 0]).unwrap_err(), Code::UnsupportedVersion);
    assert_eq!(decode(&[1, 0, 0, 0]).unwrap_err(), Code::Malformed);
    assert_eq!(decode(&[1, 0, 0, 0, 0]).unwrap_err(), Code::InvalidBatch);
    for count in [0, 65] {
        let head = [1, 0, 0, 0, 0, 0, 0, count, 1, 1];
        assert_eq!(decode(&head).unwrap().next(), Some(Err(Code::Malformed)));
    }
}
