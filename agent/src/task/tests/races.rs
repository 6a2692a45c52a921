//! Links, and what else can lie or be put where a task makes something: nothing is followed, nothing of others is touched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::TaskOutcome;
use proptest::prelude::*;

use super::super::domain::Input;
use super::super::link::read_line;
use super::super::{handlers, verify};
use super::bench::*;

pub(super) type Put = fn(machines: &Path, outside: &Path);

pub(super) fn fifo(path: &Path) {
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

/// What lies there before the task comes: its folder is `vm-1`, its lease `vm-1.lease`.
pub(super) const BEFORE: [(&str, Put); 17] = [
    ("folder: link to a folder", |m, o| {
        symlink(o, m.join("vm-1")).unwrap();
    }),
    ("folder: link to a file", |m, o| {
        symlink(o.join("precious"), m.join("vm-1")).unwrap();
    }),
    ("folder: link to nothing", |m, o| {
        symlink(o.join("new"), m.join("vm-1")).unwrap();
    }),
    ("folder: link to itself", |m, _| {
        symlink("vm-1", m.join("vm-1")).unwrap();
    }),
    ("folder: link upwards", |m, _| {
        symlink("..", m.join("vm-1")).unwrap();
    }),
    ("folder: link to its own folder", |m, _| {
        symlink(".", m.join("vm-1")).unwrap();
    }),
    ("folder: link to the root", |m, _| {
        symlink("/", m.join("vm-1")).unwrap();
    }),
    ("folder: relative link outside", |m, _| {
        symlink("../../outside", m.join("vm-1")).unwrap();
    }),
    ("folder: a file", |m, _| fs::write(m.join("vm-1"), "x").unwrap()),
    ("folder: a pipe", |m, _| fifo(&m.join("vm-1"))),
    ("folder: another name of a file outside", |m, o| {
        fs::hard_link(o.join("precious"), m.join("vm-1")).unwrap();
    }),
    ("lease: link to a file", |m, o| {
        symlink(o.join("precious"), m.join("vm-1.lease")).unwrap();
    }),
    ("lease: link to nothing", |m, o| {
        symlink(o.join("new"), m.join("vm-1.lease")).unwrap();
    }),
    ("lease: link to a folder", |m, o| {
        symlink(o, m.join("vm-1.lease")).unwrap();
    }),
    ("lease: a folder", |m, _| {
        fs::create_dir(m.join("vm-1.lease")).unwrap();
    }),
    ("lease: a pipe", |m, _| fifo(&m.join("vm-1.lease"))),
    ("lease: another name of a file outside", |m, o| {
        fs::hard_link(o.join("precious"), m.join("vm-1.lease")).unwrap();
    }),
];

/// What is done to its things while it runs, before it is undone: they are `waits-1` and `waits-1.lease`.
pub(super) const MEANWHILE: [(&str, Put); 8] = [
    ("folder swapped for a link", |m, o| {
        fs::rename(m.join("waits-1"), m.join("moved")).unwrap();
        symlink(o, m.join("waits-1")).unwrap();
    }),
    ("folder swapped for another", |m, o| {
        fs::rename(m.join("waits-1"), m.join("moved")).unwrap();
        fs::create_dir(m.join("waits-1")).unwrap();
        symlink(o, m.join("waits-1/link")).unwrap();
    }),
    ("link to a folder put in", |m, o| {
        symlink(o, m.join("waits-1/link")).unwrap();
    }),
    ("link to a file put in", |m, o| {
        symlink(o.join("precious"), m.join("waits-1/link")).unwrap();
    }),
    ("link in a folder put in", |m, o| {
        fs::create_dir_all(m.join("waits-1/a/b")).unwrap();
        symlink(o, m.join("waits-1/a/b/c")).unwrap();
    }),
    ("file swapped for a link", |m, o| {
        fs::remove_file(m.join("waits-1/secret")).unwrap();
        symlink(o.join("precious"), m.join("waits-1/secret")).unwrap();
    }),
    ("lease swapped for a link", |m, o| {
        fs::remove_file(m.join("waits-1.lease")).unwrap();
        symlink(o.join("precious"), m.join("waits-1.lease")).unwrap();
    }),
    ("lease swapped for another name of a file", |m, o| {
        fs::remove_file(m.join("waits-1.lease")).unwrap();
        fs::hard_link(o.join("precious"), m.join("waits-1.lease")).unwrap();
    }),
];

pub(super) fn outside(dir: &Path) -> std::path::PathBuf {
    let outside = dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "precious").unwrap();
    outside
}

pub(super) fn is_untouched(outside: &Path, case: &str) {
    let names: Vec<_> = fs::read_dir(outside)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["precious"], "{case}");
    assert_eq!(
        fs::read_to_string(outside.join("precious")).unwrap(),
        "precious",
        "{case}"
    );
}

#[test]
fn what_lies_where_a_task_would_make_something_is_neither_followed_nor_replaced() {
    for (case, put) in BEFORE {
        let dir = tempfile::tempdir().unwrap();
        let (node, outside) = (Node::start(dir.path()), outside(dir.path()));
        put(&node.host.dir.machines(), &outside);
        let before = left(&node.host);
        let result = node.run(&launch(&node.site, "task-1", "vm-1"));
        assert_eq!(
            code(&result),
            Some(Code::ResourceBusy),
            "{case}: {:?}",
            result.detail
        );
        assert_eq!(left(&node.host), before, "{case}");
        is_untouched(&outside, case);
    }
}

#[test]
fn what_is_put_in_the_place_of_a_task_s_things_is_not_followed_when_they_are_taken_away() {
    for (case, put) in MEANWHILE {
        let dir = tempfile::tempdir().unwrap();
        let (node, outside) = (Node::start(dir.path()), outside(dir.path()));
        let task = launch(&node.site, "task-1", "waits-1");
        node.deliver(&task);
        node.phase("start");
        put(&node.host.dir.machines(), &outside);
        assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&task))));
        assert_eq!(node.result(&task).outcome, TaskOutcome::Cancelled, "{case}");
        is_untouched(&outside, case);
    }
}

/// Members of parameters, and some that are none.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "vm_id",
            "vm_name",
            "allocation_id",
            "username",
            "packages",
            "checks",
            "slots",
            "image_path",
            "image_sha256",
            "memory_mib",
            "vcpu_count",
            "lease_seconds",
            "wipe",
            "ssh_public_keys",
            "graceful_timeout_seconds",
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ]
}

/// Any value, some of them nearly right.
fn value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        ".{0,40}".prop_map(Value::from),
        proptest::sample::select(vec![
            "vm-1",
            "alice",
            "gpu",
            "/i/a",
            "../x",
            "0000:3b:00.0",
            "-rf"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((word(), inner), 0..6)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        drop(read_line::<Input>(&mut bytes.as_slice()));
        drop(serde_json::from_slice::<hpc_schema::task::WaitAnswer>(&bytes));
    }

    /// Parameters of every type, put together from what its schema knows and what it does not: refused or right, never more.
    #[test]
    fn no_parameters_make_the_decoder_panic_or_mean_what_their_schema_does_not_allow(
        kind in proptest::sample::select(hpc_schema::task::TaskType::ALL.to_vec()),
        members in proptest::collection::vec((word(), value()), 0..12),
    ) {
        let all: serde_json::Map<String, serde_json::Value> = members.into_iter().collect();
        let text = serde_json::Value::Object(all).to_string();
        let raw = serde_json::value::RawValue::from_string(text).unwrap();
        if let Ok(read) = hpc_schema::task::Params::parse(kind, &raw) {
            prop_assert_eq!(read.kind(), kind);
        }
    }

    /// A word with anything done to it is the same task, or none, or refused.
    #[test]
    fn whatever_is_done_to_a_word_no_other_task_is_taken(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let site = Site::new();
        let task = launch(&site, "task-1", "vm-1");
        let delivered = hpc_schema::task::Delivered { task: task.clone(), lease_seconds: 30, attempt: 1 };
        let mut line = serde_json::to_vec(&Input::Deliver(Box::new(delivered))).unwrap();
        for (at, byte, how) in changes {
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ => { line.remove(at); }
            }
        }
        line.push(b'\n');
        if let Ok(Some(Input::Deliver(changed))) = read_line::<Input>(&mut line.as_slice()) {
            let hash = |t| verify::hash_of(t, &site.authority);
            let policy = super::super::Policy { mode: Some(hpc_schema::task::NodeMode::Slice), ..Default::default() };
            let now = crate::clock::Clock::system().seconds();
            let taken = verify::check(&changed.task, &site.authority, &policy, handlers::handler, now).is_ok();
            prop_assert!(!taken || hash(&changed.task) == hash(&task));
        }
    }
}
