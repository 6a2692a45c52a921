//! What a task could not take away, what was refused, what cannot be read: nothing of it is forgotten.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::task::{NodeMode, TaskOutcome};

use super::super::domain::{Input, Output};
use super::super::effect::{Effect, Machine, Trace};
use super::super::journal::{Journal, Record};
use super::super::verify::hash_of;
use super::super::{Host, Ledger, Leftovers, Owner, Policy, Steward};
use super::bench::*;

struct Looks(Arc<AtomicBool>);

impl Steward for Looks {
    fn name(&self) -> &'static str {
        "looks"
    }

    fn look(&mut self, _host: &Host, _ledger: &Arc<Ledger>) -> Duration {
        self.0.store(true, Ordering::Release);
        Duration::from_millis(20)
    }
}

/// A task that was interrupted, and whose control group cannot be taken away while something is in it.
fn interrupted(dir: &Path, site: &Site) -> hpc_schema::task::Task {
    let host = host(dir);
    host.dir.create().unwrap();
    let task = launch(site, "task-1", "vm-1");
    let taken = Record::Taken {
        hash: hash_of(&task, &site.authority).unwrap().to_hex(),
        task: task.clone(),
        at: 1,
        owner: Some(Owner::new("vm", "vm-1")),
    };
    let mut journal = Journal::create(&host.dir.journal(), &task.task_id, taken).unwrap();
    journal.add(Record::Began { at: 1 }).unwrap();
    let machine = Machine {
        program: path("/bin/true"),
        arguments: Vec::new(),
        control: path("/nowhere/control"),
        user: None,
        cgroups: path(dir.join("cgroup")),
        group: "vm-1".to_owned(),
        memory: 1,
        cpu: 1,
    };
    let effect = Effect::Machine(machine);
    journal.add(Record::Intent { step: 0, effect }).unwrap();
    let trace = Trace::Process {
        pid: 4_000_000,
        start: 1,
    };
    journal.add(Record::Made { step: 0, trace }).unwrap();
    task
}

#[test]
fn what_could_not_be_undone_is_known_and_tried_again_until_it_is_gone_while_stewards_look() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::new();
    let task = interrupted(dir.path(), &site);
    let group = dir.path().join("cgroup/memory/virtengine-machines/vm-1");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("busy"), "").unwrap();
    let looked = Arc::new(AtomicBool::new(false));
    let stewards: Vec<Box<dyn Steward>> = vec![
        Box::new(Leftovers::after(Duration::from_millis(20))),
        Box::new(Looks(Arc::clone(&looked))),
    ];
    let node = Node::looked_after(host(dir.path()), site, stewards);
    // Leases of other machines do not wait for what is being undone.
    until("a steward looks", || looked.load(Ordering::Acquire));
    assert!(node.said.try_recv().is_err(), "it is not undone yet");
    let result = node.result(&task);
    assert_eq!(code(&result), Some(Code::OutcomeUnknown));
    let ledger = Arc::clone(node.domain.ledger());
    // While it is tried again it is not listed.
    let mut left = Vec::new();
    until("it is listed", || {
        left = ledger.residues();
        left.len() == 1
    });
    assert!(left[0].findings[0].starts_with("machine vm-1: "), "{left:?}");
    node.heard(&task.task_id);
    until("it is heard", || ledger.all()[0].lock().unwrap().story().heard);
    ledger.forget(u64::MAX);
    assert_eq!(
        ledger.all().len(),
        1,
        "nothing is forgotten of which something is left"
    );
    fs::remove_file(group.join("busy")).unwrap();
    until("it is gone", || !group.exists());
    until("it is forgotten", || {
        ledger.forget(u64::MAX);
        ledger.all().is_empty()
    });
}

#[test]
fn what_was_refused_once_is_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let mut closed = host(dir.path());
    closed.policy = Arc::new(Policy {
        mode: Some(NodeMode::WholeNode),
        ..Policy::default()
    });
    let node = Node::with(closed, Site::new());
    let task = launch(&node.site, "task-1", "vm-1");
    let first = node.run(&task);
    assert_eq!(code(&first), Some(Code::WrongMode));
    // Taken back before it came: not begun when it comes.
    let late = launch(&node.site, "task-2", "vm-2");
    assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&late))));
    assert_eq!(node.result(&late).outcome, TaskOutcome::Cancelled);
    node.domain.stop();
    // Now the site allows it; what is on record as refused stays so.
    let node = Node::with(host(dir.path()), node.site);
    assert_eq!(node.run(&task).signature, first.signature);
    assert_eq!(node.run(&late).outcome, TaskOutcome::Cancelled);
    assert!(left(&node.host).is_empty());
    assert_eq!(code(&node.run(&launch(&node.site, "task-3", "vm-3"))), None);
}

#[test]
fn a_journal_that_cannot_be_read_or_is_too_long_ends_its_task_as_unknown_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    host.dir.create().unwrap();
    let long = host.dir.journal().join("task-long.log");
    fs::write(&long, vec![b'x'; (8 << 20) + 1]).unwrap();
    fs::create_dir(host.dir.journal().join("task-folder.log")).unwrap();
    let node = Node::with(host, Site::new());
    for id in ["task-long", "task-folder"] {
        let task = launch(&node.site, id, "vm-1");
        assert_eq!(code(&node.run(&task)), Some(Code::OutcomeUnknown), "{id}");
        assert!(node.domain.ledger().damaged().contains_key(id));
    }
    assert!(left(&node.host).is_empty());
    assert_eq!(fs::metadata(&long).unwrap().len(), (8 << 20) + 1);
}

#[test]
fn a_task_that_waits_for_its_turn_says_so_and_not_that_it_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let first = launch(&node.site, "task-1", "waits-1");
    node.deliver(&first);
    let second = terminate(&node.site, "task-2", "waits-1");
    node.deliver(&second);
    node.deliver(&second);
    let phase = node.wait_for("a word of the second", |said| match said {
        Output::Progress { task_id, progress } if task_id == second.task_id => Some(progress.phase),
        _ => None,
    });
    assert_eq!(phase, "waiting");
    assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&first))));
    assert_eq!(node.result(&second).outcome, TaskOutcome::Completed);
}
