//! What others keep in files: the running agent its round trips and for what it drains the node, the task domain what its
//! tasks hold.

use std::path::Path;

use serde_json::{Value, json};

use super::rows::told;
use crate::clock::unix_seconds;
use crate::command::Journal;
use crate::health::OutOfService;
use crate::heartbeat::{Held, HoldingsFile};
use crate::history::{History, Sample, fields};
use crate::sample::{Category, max_staleness};
use crate::state::{Lock, ServiceRecord, StateDir, Status};

/// Round trips to the gateway, to the chain and to peers, as the agent that runs on `state` keeps them: nobody else measures
/// them. `now` is the wall clock in UNIX seconds.
pub(super) fn round_trips(state: &StateDir, now: u64) -> [Value; 3] {
    let runs = Lock::is_held(state);
    let longest = max_staleness(Category::Latency).as_secs();
    let fresh = |measured: Option<(Value, u64)>| {
        if !runs {
            return Err(format!("no agent runs on {}", state.path().display()));
        }
        let (value, at) = measured.ok_or_else(|| "the running agent has not measured it yet".to_owned())?;
        let age = now.saturating_sub(at);
        if age > longest {
            return Err(format!("the running agent measured it last {age} s ago"));
        }
        Ok((value, age.saturating_mul(1000)))
    };
    // What cannot be read is not known.
    let status = Status::load(state).ok().flatten().unwrap_or_default();
    let gateway = status.gateway_latency_us.zip(status.gateway_latency_at);
    let chain = status.chain.and_then(|c| c.latency_ms.zip(c.told_at));
    let peers = History::read(&state.history(), Category::Latency, 0)
        .ok()
        .and_then(|all| all.last().map(|s| (named(s), s.at)));
    let row = |name, source, measured| told(name, source, Category::Latency, fresh(measured));
    [
        row(
            "gateway latency µs",
            "heartbeats of the running agent",
            gateway.map(|(us, at)| (json!(us), at)),
        ),
        row(
            "chain latency ms",
            "the gateway's answers to the running agent",
            chain.map(|(ms, at)| (json!(ms), at)),
        ),
        row("peers", "UDP probes of the running agent", peers),
    ]
}

fn named(sample: &Sample) -> Value {
    let names = fields(Category::Latency).iter().zip(&sample.figures);
    Value::Object(names.map(|(k, v)| ((*k).to_owned(), json!(v))).collect())
}

/// Whether the provider has this node drained, and why its agent keeps it out of service: by these a drain in Slurm is known as
/// the agent's own. What cannot be read says nothing.
pub(super) fn kept_drained(state: &StateDir) -> (bool, Option<OutOfService>) {
    let ordered = Journal::load(state, unix_seconds()).is_ok_and(|j| j.drain.is_some());
    (ordered, ServiceRecord::load(state).ok().and_then(|r| r.out))
}

/// What tasks hold and what runs because of it, by the task domain's folder; none where the node takes no tasks.
pub(super) fn held_by_tasks(dir: Option<&Path>) -> (Held, Value) {
    let source = "tasks.dir, holdings.json";
    let row = |said| told("held by tasks", source, Category::Capacity, said);
    if dir.is_none() {
        let why = "no section tasks is configured";
        return (Held::default(), row(Err(why.to_owned())));
    }
    match HoldingsFile::new(dir).read() {
        Ok(all) => {
            let h = all.held;
            let value = json!({"cores": h.cores, "memory_gb": h.memory_gb, "gpus": h.gpus, "work": all.work});
            (h, row(Ok((value, 0))))
        }
        // What cannot be read is shown as nothing.
        Err(e) => (Held::default(), row(Err(e.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use hpc_schema::node::NodeState;

    use super::*;
    use crate::config::SamplingConfig;
    use crate::history::Values;
    use crate::state::{ChainView, StatusFile};

    #[test]
    fn round_trips_are_those_of_the_running_agent_with_an_age_that_grows_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let at = 1_795_303_803;
        let status = Status {
            gateway_latency_us: Some(900),
            gateway_latency_at: Some(at),
            chain: Some(ChainView {
                node_state: NodeState::Active,
                settled_sequence: 1,
                height: 1,
                epoch: 1,
                latency_ms: Some(4),
                told_at: Some(at),
            }),
            ..Status::default()
        };
        StatusFile::new(&state).save(&status).unwrap();
        let moment = Instant::now();
        let values = Values {
            taken: Some(moment),
            figures: vec![Some(2), Some(150), Some(0)],
        };
        History::new(&state.history(), &SamplingConfig::default())
            .record(Category::Latency, &values, at, moment)
            .unwrap();
        let absent = |now, why: &str| {
            for row in round_trips(&state, now) {
                assert!(row["value"].is_null() && row["age_ms"].is_null(), "{row}");
                assert!(row["reason"].as_str().unwrap().contains(why), "{row}");
                assert!(!row["source"].as_str().unwrap().is_empty());
            }
        };
        absent(at, "no agent runs on");
        let _runs = Lock::take(&state).unwrap().unwrap();
        let shown = |now| round_trips(&state, now).map(|r| (r["value"].clone(), r["age_ms"].as_u64()));
        let peers = json!({"peers": 2, "latency_us": 150, "loss_percent": 0});
        for (seconds, age) in [(0, 0), (7, 7_000), (600, 600_000)] {
            let expected = [json!(900), json!(4), peers.clone()].map(|v| (v, Some(age)));
            assert_eq!(shown(at + seconds), expected);
        }
        absent(at + 601, "601 s ago");
        StatusFile::new(&state).save(&Status::default()).unwrap();
        let [gateway, chain, _] = round_trips(&state, at);
        for row in [gateway, chain] {
            assert!(
                row["reason"].as_str().unwrap().contains("not measured it yet"),
                "{row}"
            );
        }
    }

    #[test]
    fn what_tasks_hold_is_a_figure_of_its_own_and_absent_with_its_reason() {
        let (held, row) = held_by_tasks(None);
        assert_eq!((held, &row["value"]), (Held::default(), &Value::Null));
        assert!(
            row["reason"].as_str().unwrap().contains("no section tasks"),
            "{row}"
        );
        let dir = tempfile::tempdir().unwrap();
        let (_, row) = held_by_tasks(Some(dir.path()));
        let nothing = json!({"cores": 0, "memory_gb": 0, "gpus": 0, "work": []});
        assert_eq!((&row["value"], &row["age_ms"]), (&nothing, &json!(0)));
        std::fs::write(dir.path().join("holdings.json"), "{").unwrap();
        let (held, row) = held_by_tasks(Some(dir.path()));
        assert_eq!((held, &row["value"]), (Held::default(), &Value::Null));
        assert!(row["reason"].as_str().unwrap().contains("holdings.json"), "{row}");
    }
}
