//! What holds after any history.

use proptest::prelude::*;

use super::super::super::record::tests::any_record;
use super::*;

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
