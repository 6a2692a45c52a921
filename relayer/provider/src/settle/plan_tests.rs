use std::collections::{BTreeMap, BTreeSet, HashMap};

use hpc_chain::gas::Adjustment;
use proptest::prelude::*;

use super::*;
use crate::settle::fit::{CHECK_AGAIN, Fit, Load, ReportLoad, STEP};

const LIMITS: Limits = Limits {
    max_size: 50,
    interval_ms: 60_000,
    batch_limit: 1024,
    max_tx_bytes: 400_000,
    max_gas: 20_000_000,
    gas: ReportGas {
        tx: 116_300,
        page: 10_300,
        report: 2_700,
        section_page: 37_000,
        section: 4_600,
        section_byte: 42,
    },
};

fn report(cluster: u8, page: u16, slot: u8, queued_at: u64) -> Waiting {
    Waiting {
        cluster_id: format!("cluster-{cluster}").parse().unwrap(),
        page,
        slot,
        queued_at,
        lapses_at: None,
        absent: 1,
        time: 1_800_000_000,
        section_len: 0,
    }
}

#[test]
fn nothing_waits_and_nothing_is_sent() {
    assert_eq!(plan(&[], &LIMITS, 0), Decision::Idle);
}

#[test]
fn a_report_waits_for_its_interval_and_no_longer() {
    let w = [report(1, 0, 3, 1000)];
    assert_eq!(plan(&w, &LIMITS, 60_999), Decision::Wait { until: 61_000 });
    assert_eq!(plan(&w, &LIMITS, 61_000), Decision::Send(vec![0]));
}

#[test]
fn a_state_that_would_lapse_brings_its_report_forward_but_not_without_bound() {
    for (lapses_at, due) in [
        (150_000, 150_000 - LAPSE_MARGIN_MS),
        // It came when little was left: others that come with it are gathered, and no more.
        (110_000, 101_000),
        (100_001, 101_000),
        // Lapsed already: a quarter of the interval is waited all the same.
        (100_000, 115_000),
        (1, 115_000),
        (1_000_000, 160_000),
    ] {
        let w = Waiting {
            lapses_at: Some(lapses_at),
            ..report(1, 0, 3, 100_000)
        };
        let waits = plan(std::slice::from_ref(&w), &LIMITS, 100_000);
        assert_eq!(waits, Decision::Wait { until: due }, "{lapses_at}");
        assert_eq!(plan(&[w], &LIMITS, due), Decision::Send(vec![0]), "{lapses_at}");
    }
}

#[test]
fn no_state_lapses_while_its_report_waits_from_before_it_would() {
    for came in (0..=40_000).step_by(500) {
        let w = Waiting {
            lapses_at: Some(100_000),
            ..report(1, 0, 3, 100_000 - 2_000 - came)
        };
        let due = due_at(&w, &LIMITS);
        assert!(
            due <= 99_000 && due <= w.queued_at + LIMITS.interval_ms,
            "{came}: {due}"
        );
    }
}

#[test]
fn fifty_stop_the_waiting_and_the_page_goes_whole() {
    let w: Vec<_> = (0..60).map(|slot| report(1, 0, slot, 1000)).collect();
    assert!(matches!(plan(&w[..49], &LIMITS, 1000), Decision::Wait { .. }));
    let Decision::Send(sent) = plan(&w, &LIMITS, 1000) else {
        panic!("waits")
    };
    assert_eq!(sent, (0..60).collect::<Vec<_>>());
}

/// How many reports of which cluster go.
fn sent_of(w: &[Waiting], now: u64) -> BTreeMap<String, usize> {
    let Decision::Send(sent) = plan(w, &LIMITS, now) else {
        panic!("waits")
    };
    let mut of = BTreeMap::new();
    for i in sent {
        *of.entry(w[i].cluster_id.to_string()).or_default() += 1;
    }
    of
}

#[test]
fn fifty_spread_over_many_pages_go_as_one_batch_and_fewer_wait() {
    let w: Vec<_> = (0..60u16).map(|i| report(1, i, 0, 1000)).collect();
    assert_eq!(plan(&w[..49], &LIMITS, 1000), Decision::Wait { until: 61_000 });
    // No more than make a batch: the others may be joined by others of their pages.
    assert_eq!(sent_of(&w, 1000).values().sum::<usize>(), 50);
}

#[test]
fn pages_that_are_complete_go_without_those_that_are_not() {
    // Ten clusters of ten nodes: of five all have reported, of five half.
    let w: Vec<_> = (0..10u8)
        .flat_map(|c| {
            let reported = if c < 5 { 10 } else { 5 };
            (0..reported).map(move |slot| (c, slot))
        })
        .map(|(c, slot)| Waiting {
            absent: if c < 5 { 0 } else { 5 },
            ..report(c, 0, slot, 1000)
        })
        .collect();
    let sent = sent_of(&w, 1000);
    assert_eq!(sent.len(), 5);
    assert!(sent.values().all(|n| *n == 10), "{sent:?}");
    // Fewer than make a batch: it is as before.
    assert!(matches!(plan(&w[..49], &LIMITS, 1000), Decision::Wait { .. }));
}

#[test]
fn where_no_page_is_complete_the_fullest_make_a_batch() {
    let reports = |c: u8, n: u8| (0..n).map(move |slot| report(c, 0, slot, 1000));
    let w: Vec<_> = (1..=6)
        .flat_map(|c| reports(c, 8))
        .chain(reports(7, 1))
        .chain(reports(8, 3))
        .collect();
    let sent = sent_of(&w, 1000);
    assert_eq!((sent.len(), sent.get("cluster-8")), (7, Some(&3)), "{sent:?}");
}

#[test]
fn one_small_page_that_is_complete_goes_in_a_batch_and_not_alone() {
    let mut w: Vec<_> = (0..50u16).map(|i| report(1, i, 0, 1000)).collect();
    w[7].absent = 0;
    assert_eq!(sent_of(&w, 1000).values().sum::<usize>(), 50);
}

#[test]
fn a_due_page_takes_its_young_reports_along_and_leaves_other_pages_alone() {
    let w = [
        report(1, 0, 1, 0),
        report(1, 0, 2, 59_000),
        report(1, 1, 0, 59_000),
    ];
    assert_eq!(plan(&w, &LIMITS, 60_000), Decision::Send(vec![0, 1]));
}

#[test]
fn what_does_not_fit_stays_page_by_page_and_a_page_alone_goes_in_part() {
    let limits = Limits {
        batch_limit: 70,
        ..LIMITS
    };
    let w: Vec<_> = (0..128u16)
        .map(|i| report(1, i / 64, (i % 64) as u8, 0))
        .collect();
    let Decision::Send(sent) = plan(&w, &limits, 60_000) else {
        panic!("waits")
    };
    assert_eq!(sent, (0..64).collect::<Vec<_>>());
    let limits = Limits {
        batch_limit: 10,
        ..LIMITS
    };
    let Decision::Send(sent) = plan(&w, &limits, 60_000) else {
        panic!("waits")
    };
    assert_eq!(sent.len(), 10);
}

#[test]
fn reports_too_far_apart_in_time_do_not_share_a_batch() {
    let mut w = [report(1, 0, 1, 0), report(1, 1, 0, 0)];
    w[1].time += 70_000;
    let Decision::Send(sent) = plan(&w, &LIMITS, 60_000) else {
        panic!("waits")
    };
    assert_eq!(sent.len(), 1);
}

#[test]
fn what_reports_were_seen_to_take_bounds_how_many_go_together() {
    let load = Load::Reports(ReportLoad {
        pages: 1,
        reports: 64,
        ..ReportLoad::default()
    });
    let w: Vec<_> = (0..640u16)
        .map(|i| report(1, i / 64, (i % 64) as u8, 0))
        .collect();
    let sent_after = |permille: u64| {
        let mut fit = Fit::default();
        let used = fit.gas(load) * permille / 1_000;
        for _ in 0..64 {
            fit.learn(load, used);
        }
        let limits = Limits {
            max_gas: 1_000_000,
            gas: fit.report_gas("1.1".parse().unwrap()),
            ..LIMITS
        };
        let Decision::Send(sent) = plan(&w, &limits, 60_000) else {
            panic!("waits")
        };
        sent.len()
    };
    assert_eq!([500, 1_000, 2_000].map(sent_after), [4 * 64, 2 * 64, 64]);
}

#[test]
fn no_more_goes_together_than_max_gas_suffices_for_whatever_else_is_in_the_pages() {
    let adjustment = "1.1".parse::<Adjustment>().unwrap();
    let fit = Fit::default();
    for (each, section_len) in [(1u16, 0), (11, 300), (32, 0), (64, 4_000)] {
        let w: Vec<_> = (0..40 * each)
            .map(|i| Waiting {
                section_len: if i % each == 0 { section_len } else { 0 },
                ..report(1, i / each, u8::try_from(i % each).unwrap(), 0)
            })
            .collect();
        let limits = Limits {
            max_gas: 2_000_000,
            max_tx_bytes: 4_000_000,
            gas: fit.report_gas(adjustment),
            ..LIMITS
        };
        let Decision::Send(sent) = plan(&w, &limits, 60_000) else {
            panic!("waits")
        };
        let pages: BTreeSet<_> = sent.iter().map(|i| w[*i].page).collect();
        let sections = sent.iter().filter(|i| w[**i].section_len > 0);
        let (pages, reports) = (pages.len() as u64, sent.len() as u64);
        let sections = sections.count() as u64;
        assert!(pages > 1 && reports < u64::from(each) * 40, "{each}");
        // Full pages, all nodes of which change their state.
        let load = ReportLoad {
            pages,
            others: pages * 64 - reports,
            reports,
            section_pages: sections,
            sections,
            section_bytes: sections * u64::from(section_len),
            stepped_pages: pages,
            steps: reports,
        };
        let margin = load.others * STEP + reports * CHECK_AGAIN;
        let signed = adjustment.apply(fit.gas(Load::Reports(load))) + margin;
        assert!(signed <= limits.max_gas, "{each}: {signed}");
    }
}

fn any_waiting() -> impl Strategy<Value = Vec<Waiting>> {
    let one = (
        1u8..4,
        0u16..6,
        0u8..64,
        0u64..100_000,
        prop::option::of(0u64..200_000),
        0u32..400,
        prop_oneof![Just(0u32), 0u32..4096],
    )
        .prop_map(
            |(cluster, page, slot, queued_at, lapses_at, time, section_len)| Waiting {
                lapses_at,
                time: 1_800_000_000 + time,
                section_len,
                ..report(cluster, page, slot, queued_at)
            },
        );
    prop::collection::vec(one, 0..200).prop_map(|all| {
        let mut seen = HashMap::new();
        for w in all {
            seen.insert((w.cluster_id.clone(), w.page, w.slot), w);
        }
        seen.into_values().collect()
    })
}

proptest! {
    #[test]
    fn plans_are_ordered_bounded_and_never_leave_everything_due_behind(
        waiting in any_waiting(),
        now in 0u64..300_000,
        max_size in 1usize..100,
        batch_limit in 1usize..200,
        max_tx_bytes in 20_000u64..400_000,
    ) {
        let limits = Limits { max_size, batch_limit, max_tx_bytes, ..LIMITS };
        match plan(&waiting, &limits, now) {
            Decision::Idle => prop_assert!(waiting.is_empty()),
            Decision::Wait { until } => {
                prop_assert!(until > now);
                prop_assert!(waiting.iter().all(|w| due_at(w, &limits) > now));
                // Asked again then, it sends.
                prop_assert!(matches!(plan(&waiting, &limits, until), Decision::Send(_)));
            }
            Decision::Send(sent) => {
                prop_assert!(!sent.is_empty() && sent.len() <= batch_limit);
                let keys: Vec<_> = sent.iter().map(|i| (&waiting[*i].cluster_id, waiting[*i].page, waiting[*i].slot)).collect();
                prop_assert!(keys.windows(2).all(|k| k[0] < k[1]), "strictly rising, nobody twice");
                let bytes: u64 = sent.iter().map(|i| item_bytes(&waiting[*i])).sum();
                prop_assert!(sent.len() == 1 || bytes <= max_tx_bytes);
                // The most urgent page is in it, and if anything is due, something due is sent.
                if waiting.iter().any(|w| due_at(w, &limits) <= now) {
                    let pages: BTreeSet<_> = sent.iter().map(|i| (&waiting[*i].cluster_id, waiting[*i].page)).collect();
                    prop_assert!(waiting.iter().any(|w| due_at(w, &limits) <= now && pages.contains(&(&w.cluster_id, w.page))));
                }
            }
        }
    }
}
