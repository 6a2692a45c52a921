//! The rules one by one.

use super::*;

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
