use hpc_schema::code::Code;
use hpc_schema::task::TaskOutcome;

use super::super::Authority;
use super::super::domain::{Holdings, Input, Output};
use super::bench::*;
use super::hostile::at;

#[test]
fn a_health_probe_ends_with_a_signed_result() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = node.site.task(
        "probe-1",
        "diag.health_probe",
        r#"{"checks":["kernel","memory"]}"#,
    );
    let result = node.run(&task);
    assert_eq!(result.outcome, TaskOutcome::Completed, "{result:?}");
    let value = value(&result);
    assert_eq!(value["checks"].as_array().unwrap().len(), 2);
    assert!(value["memory_available_mib"].as_u64().unwrap() > 0);
}

#[test]
fn a_task_that_is_issued_ahead_of_this_clock_does_not_end_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let mut task = node.site.task("probe-1", "diag.health_probe", "{}");
    task.issued_at = at(30);
    node.site.sign(&mut task);
    let result = node.run(&task);
    assert_eq!(result.outcome, TaskOutcome::Completed, "{result:?}");
    assert_eq!(result.finished_at.seconds(), task.issued_at.seconds());
}

#[test]
fn what_a_failed_or_broken_task_did_is_undone_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for (vm, wanted) in [("fails-1", Code::TaskFailed), ("breaks-1", Code::TaskFailed)] {
        let result = node.run(&launch(&node.site, &format!("task-{vm}"), vm));
        assert_eq!(code(&result), Some(wanted));
        assert!(left(&node.host).is_empty(), "{:?}", left(&node.host));
        assert!(value(&result)["timings"]["lease"].is_u64());
    }
}

#[test]
fn what_a_completed_task_made_stays_until_it_is_released_by_the_same_way_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "vm-1");
    assert_eq!(code(&node.run(&task)), None);
    assert_eq!(left(&node.host), ["vm-1", "vm-1.lease"]);
    // Another one cannot have it.
    let result = node.run(&launch(&node.site, "task-2", "vm-1"));
    assert_eq!(code(&result), Some(Code::ResourceBusy));
    assert!(result.detail.unwrap().contains("held by vm-1"));
    assert_eq!(left(&node.host), ["vm-1", "vm-1.lease"]);
    let text = std::fs::read_to_string(node.host.dir.holdings()).unwrap();
    let shown: Holdings = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (
            shown.holdings[0].kind.as_str(),
            shown.holdings[0].facts["port"].as_u64()
        ),
        ("vm", Some(2222))
    );
    let result = node.run(&terminate(&node.site, "task-3", "vm-1"));
    assert_eq!(value(&result)["undone"], 2);
    assert!(left(&node.host).is_empty());
    // Again: there is nothing any more.
    let result = node.run(&terminate(&node.site, "task-4", "vm-1"));
    assert_eq!(value(&result)["existed"], false);
}

#[test]
fn a_task_is_carried_out_once_however_often_it_is_delivered_and_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "vm-1");
    let first = node.run(&task);
    let again = node.run(&task);
    assert_eq!(first.result.get(), again.result.get());
    assert_eq!(first.signature, again.signature);
    node.domain.stop();
    let node = Node::with(node.host, node.site);
    assert_eq!(node.run(&task).signature, first.signature);
    // Unheard, it is said again with each hello; heard, no more.
    assert!(node.domain.tell(Input::Hello));
    assert_eq!(node.result(&task).signature, first.signature);
    node.heard(&task.task_id);
    assert!(node.domain.tell(Input::Hello));
    let probe = node.site.task("probe-1", "diag.health_probe", "{}");
    node.deliver(&probe);
    let next = node.wait_for("a result", |said| match said {
        Output::Result { task_id, .. } => Some(task_id),
        Output::Progress { .. } => None,
    });
    assert_eq!(next, probe.task_id);
    // The id is that task's for good.
    let other = launch(&node.site, "task-1", "vm-2");
    assert_eq!(code(&node.run(&other)), Some(Code::TaskMismatch));
    assert_eq!(left(&node.host), ["vm-1", "vm-1.lease"]);
}

#[test]
fn a_task_that_is_taken_back_ends_and_is_undone_and_only_by_the_task_keys_word() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "waits-1");
    node.deliver(&task);
    node.phase("start");
    let good = node.site.cancellation(&task);
    let mut forged = good.clone();
    forged.signature = node.site.task("x123", "diag.health_probe", "{}").signature;
    assert!(node.domain.tell(Input::Cancel(forged)));
    let probe = node.site.task("probe-1", "diag.health_probe", "{}");
    assert_eq!(code(&node.run(&probe)), None);
    assert_eq!(left(&node.host), ["waits-1", "waits-1.lease"]);
    assert!(node.domain.tell(Input::Cancel(good)));
    let result = node.result(&task);
    assert_eq!(
        (result.outcome, code(&result)),
        (TaskOutcome::Cancelled, Some(Code::TaskCancelled))
    );
    assert!(left(&node.host).is_empty());
}

#[test]
fn one_task_at_a_time_works_for_an_owner() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "waits-1");
    node.deliver(&task);
    let end = terminate(&node.site, "task-2", "waits-1");
    node.deliver(&end);
    // The second waits; others do not.
    let probe = node.site.task("probe-1", "diag.health_probe", "{}");
    assert_eq!(code(&node.run(&probe)), None);
    assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&task))));
    assert_eq!(node.result(&task).outcome, TaskOutcome::Cancelled);
    assert_eq!(value(&node.result(&end))["existed"], false);
}

#[test]
fn a_journal_that_is_damaged_ends_its_task_as_unknown_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "vm-1");
    node.run(&task);
    node.domain.stop();
    let file = node.host.dir.journal().join("task-1.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let node = Node::with(node.host, node.site);
    assert_eq!(code(&node.run(&task)), Some(Code::OutcomeUnknown));
}

#[test]
fn a_new_task_key_counts_once_the_old_one_has_signed_it_and_the_old_one_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let probe = |site: &Site, id: &str| site.task(id, "diag.health_probe", "{}");
    let (second, step) = node.site.rotated(40);
    let (third, next) = second.rotated(41);
    assert_eq!(
        code(&node.run(&probe(&third, "early-1"))),
        Some(Code::TaskSignatureInvalid)
    );
    // Not by a stranger's word, nor by half of the way.
    let mut forged = step.clone();
    forged.signature = next.signature.clone();
    let tell = |steps: Vec<_>| assert!(node.domain.tell(Input::Keys { steps }));
    tell(vec![forged]);
    tell(vec![next.clone()]);
    assert_eq!(code(&node.run(&probe(&node.site, "still-1"))), None);
    // It was away during two rotations.
    tell(vec![step.clone(), next.clone()]);
    assert_eq!(code(&node.run(&probe(&third, "new-1"))), None);
    for (site, id) in [(&node.site, "old-1"), (&second, "old-2")] {
        assert_eq!(
            code(&node.run(&probe(site, id))),
            Some(Code::TaskSignatureInvalid)
        );
    }
    // Told once more, it stays as it is; it is pinned for the next start.
    tell(vec![step, next]);
    assert_eq!(code(&node.run(&probe(&third, "new-2"))), None);
    let pinned: Authority =
        serde_json::from_slice(&std::fs::read(node.host.dir.authority()).unwrap()).unwrap();
    assert_eq!(pinned.task_key, third.authority.task_key);
}
