use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::record::tests::any_record;
use super::super::table;
use super::*;
use crate::report::Figures;

const T0: u32 = 1_800_000_000;

fn at(seconds: u32) -> UnixSeconds {
    UnixSeconds(u64::from(T0 + seconds))
}

fn body(status: HealthStatus, running_count: u64) -> Body {
    Body::saturating(
        status,
        &Figures {
            running_count,
            cores_available: 8,
            avg_cluster_latency_us: 500,
            measurement_count: 3,
            ..Figures::default()
        },
    )
}

fn active() -> HotRecord {
    HotRecord {
        sequence: 1,
        last_heartbeat: T0,
        state: NodeState::Active,
        status: Some(HealthStatus::Healthy),
        ..HotRecord::pending()
    }
}

fn report(record: HotRecord, time: u32, now: u32, status: HealthStatus, jobs: u64) -> Applied {
    let params = Params::default();
    let ctx = Context {
        now: at(now),
        params: &params,
        cluster_active: true,
    };
    let view = ReportView {
        time: T0 + time,
        sequence: record.sequence + 1,
        body: body(status, jobs),
    };
    apply_report(record, &view, &ctx).unwrap()
}

fn sweep(record: HotRecord, now: u32) -> HotRecord {
    step_silence(
        record,
        &Params::default(),
        at(now),
        Silence::Sweep { drain_until: None },
    )
    .0
}

#[test]
fn the_boundaries_are_strict() {
    let mut record = active();
    for (now, state) in [
        (120, NodeState::Active),
        (121, NodeState::Stale),
        (300, NodeState::Stale),
        (301, NodeState::Offline),
        (3_600, NodeState::Offline),
        (3_601, NodeState::Deregistered),
    ] {
        record = sweep(record, now);
        assert_eq!(record.state, state, "after {now} s");
    }
}

#[test]
fn an_hour_without_blocks_deregisters_nobody() {
    // The first block after the halt: one sweep finds an hour of silence, but OFFLINE was never on record.
    let mut record = sweep(active(), 3_700);
    assert_eq!(record.state, NodeState::Offline);
    assert_eq!(record.offline_since(), Some(at(3_700)));
    // Not before OFFLINE has stood for deregistration_delay − offline_threshold.
    record = sweep(record, 3_700 + 3_299);
    assert_eq!(record.state, NodeState::Offline);
    assert_eq!(sweep(record, 3_700 + 3_300).state, NodeState::Deregistered);
}

#[test]
fn neighbours_are_never_stepped_beyond_offline() {
    let params = Params::default();
    let offline = sweep(active(), 301);
    let (later, steps) = step_silence(offline, &params, at(100_000), Silence::Neighbour);
    assert_eq!((later, steps), (offline, vec![]));
    assert_eq!(effective(offline, &params, at(100_000)).state, NodeState::Offline);
}

#[test]
fn a_report_two_hundred_seconds_old_leaves_or_makes_the_node_stale() {
    let fresh = HotRecord {
        last_heartbeat: T0 - 10,
        ..active()
    };
    assert_eq!(
        report(fresh, 0, 200, HealthStatus::Healthy, 0).record.state,
        NodeState::Stale
    );
    let stale = HotRecord {
        state: NodeState::Stale,
        last_heartbeat: T0 - 20,
        ..active()
    };
    let left = report(stale, 0, 200, HealthStatus::Healthy, 0);
    assert_eq!((left.record.state, left.transitions.len()), (NodeState::Stale, 0));
    let offline = HotRecord {
        state: NodeState::Offline,
        last_heartbeat: T0 - 1_000,
        ..active()
    };
    let back = report(offline, 0, 200, HealthStatus::Healthy, 0);
    let arrows: Vec<_> = back.transitions.iter().map(|t| t.to).collect();
    assert_eq!(arrows, [NodeState::Active, NodeState::Stale]);
    assert_eq!(back.downtime, Some(1_000));
}

#[test]
fn recovery_counts_the_silence_between_the_heartbeats() {
    let offline = HotRecord {
        state: NodeState::Offline,
        since: T0 + 301,
        ..active()
    };
    let back = report(offline, 1_000, 1_010, HealthStatus::Healthy, 0);
    assert_eq!(back.record.state, NodeState::Active);
    assert_eq!(back.downtime, Some(1_000));
    assert_eq!(
        (
            back.record.latency_us,
            back.record.measurements,
            back.record.since
        ),
        (500, 3, 0)
    );
    // From STALE nothing counts.
    let stale = HotRecord {
        state: NodeState::Stale,
        ..active()
    };
    assert_eq!(report(stale, 200, 200, HealthStatus::Healthy, 0).downtime, None);
}

#[test]
fn a_report_still_older_than_the_offline_threshold_recovers_nothing() {
    let params = Params {
        offline_threshold: 150,
        deregistration_delay: 700,
        ..Params::default()
    };
    let offline = HotRecord {
        state: NodeState::Offline,
        since: T0 + 151,
        ..active()
    };
    let ctx = Context {
        now: at(400),
        params: &params,
        cluster_active: true,
    };
    let view = ReportView {
        time: T0 + 200,
        sequence: 2,
        body: body(HealthStatus::Healthy, 0),
    };
    let applied = apply_report(offline, &view, &ctx).unwrap();
    assert_eq!(applied.record.state, NodeState::Offline);
    assert_eq!((applied.downtime, applied.transitions), (None, vec![]));
    assert_eq!(
        (applied.record.sequence, applied.record.last_heartbeat),
        (2, T0 + 200)
    );
    assert_eq!(applied.record.since, T0 + 151);
}

#[test]
fn a_silent_nodes_own_report_first_records_each_arrow_of_its_silence() {
    let back = report(active(), 400, 400, HealthStatus::Healthy, 0);
    let arrows: Vec<_> = back.transitions.iter().map(|t| (t.from.unwrap(), t.to)).collect();
    assert_eq!(
        arrows,
        [
            (NodeState::Active, NodeState::Stale),
            (NodeState::Stale, NodeState::Offline),
            (NodeState::Offline, NodeState::Active)
        ]
    );
    assert_eq!(back.downtime, Some(400));
}

#[test]
fn a_draining_nodes_heartbeats_are_accepted_and_keep_it_on_line() {
    let (mut record, _) = drain(active(), &Params::default(), at(0)).unwrap();
    assert_eq!(record.state, NodeState::Draining);
    for n in 1..=11 {
        let applied = report(record, n * 30, n * 30, HealthStatus::Healthy, 2);
        assert_eq!(applied.record.state, NodeState::Draining);
        record = applied.record;
    }
    let done = report(record, 360, 360, HealthStatus::Healthy, 0);
    assert_eq!(done.record.state, NodeState::Drained);
    let again = report(done.record, 390, 390, HealthStatus::Healthy, 1);
    assert_eq!(again.record.state, NodeState::Draining);
    let (resumed, _) = resume(again.record, &Params::default(), at(400)).unwrap();
    assert_eq!((resumed.state, resumed.drain), (NodeState::Active, false));
}

#[test]
fn the_agents_own_drain_ends_with_a_healthy_report_but_not_the_providers() {
    let drained = report(active(), 30, 30, HealthStatus::Draining, 0);
    let arrows: Vec<_> = drained.transitions.iter().map(|t| (t.to, t.reason)).collect();
    assert_eq!(
        arrows,
        [
            (NodeState::Draining, Reason::Agent),
            (NodeState::Drained, Reason::JobsDone)
        ]
    );
    assert_eq!(
        report(drained.record, 60, 60, HealthStatus::Healthy, 0)
            .record
            .state,
        NodeState::Active
    );
    assert_eq!(
        report(drained.record, 60, 60, HealthStatus::Unhealthy, 0)
            .record
            .state,
        NodeState::Drained
    );
    let (ordered, steps) = drain(drained.record, &Params::default(), at(40)).unwrap();
    assert_eq!((ordered.drain, steps.len()), (true, 0));
    assert_eq!(
        report(ordered, 60, 60, HealthStatus::Healthy, 0).record.state,
        NodeState::Drained
    );
}

#[test]
fn a_drain_of_a_node_that_is_away_takes_effect_with_its_next_report() {
    let params = Params::default();
    let offline = HotRecord {
        state: NodeState::Offline,
        since: T0,
        ..active()
    };
    let stale = HotRecord {
        state: NodeState::Stale,
        ..active()
    };
    for (record, now) in [(offline, 400), (stale, 200), (HotRecord::pending(), 0)] {
        let (ordered, steps) = drain(record, &params, at(now)).unwrap();
        assert_eq!((ordered.state, steps.len()), (record.state, 0));
        let back = report(ordered, now + 10, now + 10, HealthStatus::Healthy, 1);
        assert_eq!(back.record.state, NodeState::Draining);
        let withdrawn = resume(ordered, &params, at(now)).unwrap().0;
        assert_eq!((withdrawn.state, withdrawn.drain), (record.state, false));
    }
    assert_eq!(resume(active(), &params, at(0)), Err(Code::InvalidState));
}

#[test]
fn a_drain_protects_from_deregistration_until_it_ends() {
    let params = Params::default();
    let offline = HotRecord {
        state: NodeState::Offline,
        since: T0 + 301,
        drain: true,
        ..active()
    };
    let step = |until| {
        step_silence(
            offline,
            &params,
            at(50_000),
            Silence::Sweep {
                drain_until: Some(at(until)),
            },
        )
        .0
        .state
    };
    assert_eq!(step(50_001), NodeState::Offline);
    assert_eq!(step(50_000), NodeState::Deregistered);
}

#[test]
fn a_pending_node_waits_for_its_cluster() {
    let params = Params::default();
    let view = ReportView {
        time: T0,
        sequence: 1,
        body: body(HealthStatus::Healthy, 0),
    };
    let inactive = Context {
        now: at(0),
        params: &params,
        cluster_active: false,
    };
    let waiting = apply_report(HotRecord::pending(), &view, &inactive).unwrap();
    assert_eq!(
        (waiting.record.state, waiting.notice),
        (NodeState::Pending, Some(Code::ClusterInactive))
    );
    assert_eq!(waiting.record.sequence, 1);
    assert_eq!(
        report(waiting.record, 30, 30, HealthStatus::Healthy, 0)
            .record
            .state,
        NodeState::Active
    );
    assert_eq!(sweep(waiting.record, 1_000_000).state, NodeState::Pending);
}

#[test]
fn jobs_are_at_risk_failed_and_normal_again_only_if_there_were_some() {
    let t = |from, to| Transition {
        from: Some(from),
        to,
        reason: Reason::Silence,
    };
    let offline = t(NodeState::Stale, NodeState::Offline);
    let gone = t(NodeState::Offline, NodeState::Deregistered);
    let back = t(NodeState::Offline, NodeState::Active);
    use crate::registry::JobsStatus::{AtRisk, Failed, Normal};
    assert_eq!(
        [offline, gone, back].map(|t| t.jobs(true)),
        [Some(AtRisk), Some(Failed), Some(Normal)]
    );
    assert_eq!([offline, gone, back].map(|t| t.jobs(false)), [None; 3]);
    assert_eq!(t(NodeState::Active, NodeState::Stale).jobs(true), None);
}

#[test]
fn the_committed_table_is_the_codes() {
    let rows = table::rows();
    let text = format!(
        "{}\n```mermaid\n{}```\n",
        table::markdown(&rows),
        table::mermaid(&rows)
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/lifecycle.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == text,
        "lifecycle table changed; set UPDATE_GOLDEN=1 to accept"
    );

    // The page shows the same diagram; it is written by hand around it.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page
        .split_once("```mermaid\n")
        .expect("docs/protocol.md has the diagram");
    let (shown, after) = rest.split_once("```\n").unwrap();
    let drawn = table::mermaid(&rows);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, format!("{before}```mermaid\n{drawn}```\n{after}")).unwrap();
    }
    assert!(
        shown == drawn,
        "the diagram in docs/protocol.md is not the code's; set UPDATE_GOLDEN=1 to accept"
    );
}

#[test]
fn the_table_has_every_input_in_every_state() {
    let rows = table::rows();
    let mut inputs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in &rows {
        let of_state = inputs.entry((row.state, row.drain)).or_default();
        assert!(
            !of_state.contains(&&row.input),
            "{} stands there twice",
            row.input
        );
        of_state.push(&row.input);
    }
    // UNKNOWN and DEREGISTERED know no drain.
    assert_eq!(inputs.len(), 2 * NodeState::ALL.len());
    let unknown = &inputs[&(None, false)];
    for (state, of_state) in &inputs {
        assert_eq!(of_state, unknown, "{state:?}");
    }
}

#[test]
fn the_table_has_every_state_and_no_arrow_beyond_the_specifications() {
    use NodeState::{Active, Deregistered, Drained, Draining, Offline, Pending, Stale};
    let rows = table::rows();
    let states: BTreeSet<_> = rows.iter().map(|r| r.state).collect();
    assert_eq!(states.len(), 8);
    let arrows: BTreeSet<_> = table::arrows(&rows).into_iter().map(|t| (t.from, t.to)).collect();
    let mut expected: BTreeSet<_> = [
        (Pending, Active),
        (Active, Stale),
        (Stale, Active),
        (Stale, Offline),
        (Stale, Draining),
        (Active, Draining),
        (Draining, Drained),
        (Drained, Draining),
        (Draining, Active),
        (Drained, Active),
        (Draining, Offline),
        (Drained, Offline),
        (Offline, Active),
        (Offline, Draining),
        (Deregistered, Pending),
    ]
    .into_iter()
    .map(|(from, to)| (Some(from), to))
    .collect();
    expected.insert((None, Pending));
    for from in NodeState::ALL.into_iter().filter(|s| *s != Deregistered) {
        expected.insert((Some(from), Deregistered));
    }
    assert_eq!(arrows, expected);
}

/// The states that can really stand beside this silence: what no step would change.
fn consistent(mut record: HotRecord) -> HotRecord {
    if !matches!(record.state, NodeState::Offline | NodeState::Deregistered) {
        record.since = 0;
    }
    record
}

#[derive(Debug, Clone)]
enum Input {
    Report {
        age: u32,
        ahead: u32,
        status: HealthStatus,
        jobs: bool,
        skip: u32,
        cluster_active: bool,
    },
    Neighbour,
    Sweep {
        until: Option<u32>,
    },
    Drain,
    Resume,
    Deregister,
    Register,
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (0u32..330, 0u32..70, prop::sample::select(&HealthStatus::ALL[..]), any::<bool>(), 0u32..3, any::<bool>())
            .prop_map(|(age, ahead, status, jobs, skip, cluster_active)| Input::Report {
                age, ahead, status, jobs, skip, cluster_active
            }),
        2 => Just(Input::Neighbour),
        2 => prop::option::of(0u32..10_000).prop_map(|until| Input::Sweep { until }),
        1 => Just(Input::Drain),
        1 => Just(Input::Resume),
        1 => Just(Input::Deregister),
        1 => Just(Input::Register),
    ]
}

proptest! {
    #[test]
    fn histories_never_skip_a_state_turn_time_back_or_leave_deregistered_unregistered(
        steps in prop::collection::vec((0u32..4_000, any_input()), 1..60)
    ) {
        let params = Params::default();
        let (mut record, first) = register(None);
        prop_assert_eq!(first.len(), 1);
        let mut now = T0;
        for (wait, input) in steps {
            now += wait;
            let t = UnixSeconds(u64::from(now));
            let before = record;
            let (after, arrows) = match &input {
                Input::Report { age, ahead, status, jobs, skip, cluster_active } => {
                    let view = ReportView {
                        time: now + ahead - age,
                        sequence: record.sequence + skip,
                        body: body(*status, u64::from(*jobs)),
                    };
                    let ctx = Context { now: t, params: &params, cluster_active: *cluster_active };
                    match apply_report(record, &view, &ctx) {
                        Ok(a) => {
                            prop_assert!(a.record.sequence > before.sequence);
                            prop_assert_eq!(a.downtime.is_some(), a.transitions.iter().any(|x| {
                                x.from == Some(NodeState::Offline) && x.to != NodeState::Deregistered
                            }) && a.record.state != NodeState::Offline);
                            (a.record, a.transitions)
                        }
                        Err(_) => continue,
                    }
                }
                Input::Neighbour => step_silence(record, &params, t, Silence::Neighbour),
                Input::Sweep { until } => {
                    let drain_until = until.map(|u| UnixSeconds(u64::from(now + u - 5_000.min(now))));
                    step_silence(record, &params, t, Silence::Sweep { drain_until })
                }
                Input::Drain => drain(record, &params, t).unwrap_or((record, vec![])),
                Input::Resume => resume(record, &params, t).unwrap_or((record, vec![])),
                Input::Deregister => deregister(record, t).unwrap_or((record, vec![])),
                Input::Register => register(Some(record)),
            };
            // Arrows chain from the state before to the state after: none skipped, no change without one.
            let mut at = before.state;
            for arrow in &arrows {
                prop_assert_eq!(arrow.from, Some(at));
                prop_assert_ne!(arrow.to, at);
                at = arrow.to;
            }
            prop_assert_eq!(at, after.state);
            prop_assert!(after.last_heartbeat >= before.last_heartbeat);
            prop_assert!(after.last_heartbeat <= now);
            if before.state == NodeState::Deregistered {
                prop_assert!(after.state == NodeState::Deregistered || matches!(input, Input::Register));
            }
            if after.state == NodeState::Deregistered && before.state != NodeState::Deregistered {
                let allowed = matches!(input, Input::Sweep { .. } | Input::Deregister);
                prop_assert!(allowed);
            }
            // What is stored is what was meant.
            prop_assert_eq!(HotRecord::decode(&after.encode()), Some(after));
            record = after;
        }
    }

    #[test]
    fn stepping_twice_at_one_time_changes_nothing_more(record in any_record(), now: u32, sweep: bool) {
        let params = Params::default();
        let mode = if sweep { Silence::Sweep { drain_until: None } } else { Silence::Neighbour };
        let now = UnixSeconds(u64::from(now));
        let (once, _) = step_silence(consistent(record), &params, now, mode);
        let (twice, arrows) = step_silence(once, &params, now, mode);
        prop_assert_eq!((twice, arrows), (once, vec![]));
    }

    #[test]
    fn the_effective_record_is_what_a_step_would_write(record in any_record(), now: u32) {
        let params = Params::default();
        let now = UnixSeconds(u64::from(now));
        let (stepped, _) = step_silence(record, &params, now, Silence::Neighbour);
        prop_assert_eq!(effective(record, &params, now), stepped);
    }
}
