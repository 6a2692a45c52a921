//! The agent's task process is killed; machines are not.

use std::time::Duration;

use hpc_schema::task::TaskOutcome;
use serde_json::{Value, json};

use super::node::{Apart, Node, host, launch, left, place, processes, task, until};

#[test]
fn a_machine_outlives_the_agent_and_is_taken_up_again() {
    let dir = place();
    let mut first = Apart::start(dir.path(), None);
    first.deliver(&task(
        "task-1",
        "vm.launch",
        &launch("vm-1", &json!({"ready_line": null})),
    ));
    let made = first.result().expect("it was not to end");
    assert_eq!(made.outcome, TaskOutcome::Completed, "{:?}", made.detail);
    let made: Value = serde_json::from_str(made.result.get()).unwrap();
    let pid = u32::try_from(made["pid"].as_u64().unwrap()).unwrap();
    first.kill();
    assert_eq!(processes(&host(dir.path())), [pid]);
    let node = Node::start(dir.path());
    assert_eq!(node.held(), 1);
    assert_eq!(processes(&node.host), [pid]);
    let ended = node.done(
        "task-2",
        "vm.terminate",
        &json!({"vm_id": "vm-1", "graceful_timeout_seconds": 0}),
    );
    assert_eq!(
        (ended["existed"].as_bool(), ended["verified"].as_bool()),
        (Some(true), Some(true))
    );
    assert!(left(&node.host, "vm-1").is_empty());
}

/// The journal is written twice a record, before and after: each number is one moment of a launch.
#[test]
fn killed_at_any_moment_of_a_launch_nothing_is_left() {
    let runs: u64 = std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(5);
    let full = runs >= 100;
    // A launch without waiting for readiness has about 60 moments; the last ones may be past its end.
    let moments: Vec<u64> = if full {
        (1..=80).collect()
    } else {
        vec![9, 21, 33, 40, 44, 48, 52]
    };
    let (mut interrupted, mut completed) = (0, 0);
    for n in moments {
        let dir = place();
        // Known already: the probe is none of the launch's moments.
        super::accel::remember(&host(dir.path()));
        let mut killed = Apart::start(dir.path(), Some(&format!("task.journal:{n}")));
        let make = task(
            "task-1",
            "vm.launch",
            &launch("vm-k", &json!({"ready_line": null})),
        );
        killed.deliver(&make);
        let result = killed.result();
        killed.kill();
        let node = Node::start(dir.path());
        if let Some(done) = result {
            assert_eq!(
                done.outcome,
                TaskOutcome::Completed,
                "moment {n}: {:?}",
                done.detail
            );
            completed += 1;
        } else {
            interrupted += 1;
            // The gateway delivers it again: what is on record is said, nothing is done twice.
            node.deliver(&make);
            let said = node.result(&make);
            println!("moment {n}: {:?} {:?}", said.outcome, said.code);
            if said.outcome == TaskOutcome::Failed {
                assert_eq!(
                    said.code.as_deref(),
                    Some("task_interrupted"),
                    "moment {n}: {:?}",
                    said.detail
                );
                assert!(
                    left(&node.host, "vm-k").is_empty(),
                    "moment {n}: {:?}",
                    left(&node.host, "vm-k")
                );
                continue;
            }
        }
        assert_eq!(processes(&node.host).len(), 1, "moment {n}");
        node.done(
            "task-2",
            "vm.terminate",
            &json!({"vm_id": "vm-k", "graceful_timeout_seconds": 0}),
        );
        until("nothing is left", Duration::from_secs(10), || {
            left(&node.host, "vm-k").is_empty()
        });
    }
    println!("interrupted {interrupted}, completed {completed}");
    assert!(interrupted > 0);
}
