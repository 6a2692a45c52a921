//! Users of tenants for real, by the distribution's own programs, on an `/etc` and a `/home` that only the domain sees.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hpc_schema::task::{TaskOutcome, TaskResult};
use serde_json::{Value, json};

use super::node::{Apart, FIRST_UID, WHOLE_NODE, place, task, until};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4ZqVAvcFQxWm0m3Tt1Kf1vYzFvXo8x7mYd5x2b4nQ1 alice@laptop";

fn site() -> tempfile::TempDir {
    let dir = place();
    fs::write(dir.path().join(WHOLE_NODE), "").unwrap();
    fs::create_dir(dir.path().join("home")).unwrap();
    let copied = Command::new("cp")
        .args(["-a", "/etc"])
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(copied.success());
    dir
}

fn provision(change: &Value) -> Value {
    let mut all = json!({
        "allocation_id": "alloc-1", "username": "hpctenant", "ssh_public_keys": [KEY],
        "limits": {"processes": 512, "open_files": 4096},
    });
    for (key, value) in change.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn done(result: &TaskResult) -> Value {
    assert_eq!(
        result.outcome,
        TaskOutcome::Completed,
        "{:?} {:?}",
        result.code,
        result.detail
    );
    serde_json::from_str(result.result.get()).unwrap()
}

fn entry(dir: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(dir.join("etc/passwd")).unwrap();
    text.lines()
        .find(|l| l.starts_with(&format!("{name}:")))
        .map(str::to_owned)
}

fn process_of(uid: u32, script: &str) -> Child {
    Command::new("/bin/sh")
        .args(["-c", script])
        .uid(uid)
        .gid(uid)
        .current_dir("/")
        .spawn()
        .unwrap()
}

/// One at a time: each has the first id of tenants, and ends the processes that run under it.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_tenants_user_is_made_whole_and_taken_away_with_all_that_is_its() {
    let _alone = alone();
    let dir = site();
    let mut node = Apart::private(dir.path(), None);
    let mut run = |id: &str, kind: &str, params: &Value| {
        node.deliver(&task(id, kind, params));
        node.result().expect("it was not to end")
    };
    let made = done(&run(
        "task-1",
        "allocation.provision_user",
        &provision(&json!({})),
    ));
    println!("provision: {made}");
    let uid = u32::try_from(made["uid"].as_u64().unwrap()).unwrap();
    assert_eq!((uid, made["existed"].as_bool()), (FIRST_UID, Some(false)));
    let line = entry(dir.path(), "hpctenant").unwrap();
    assert!(
        line.contains(&format!(":{uid}:{uid}:virtengine task-1-")) && line.ends_with("/bin/bash"),
        "{line}"
    );
    let keys = dir.path().join("home/hpctenant/.ssh/authorized_keys");
    let meta = fs::metadata(&keys).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (uid, 0o600));
    assert_eq!(fs::read_to_string(&keys).unwrap(), format!("{KEY}\n"));
    let limits = fs::read_to_string(
        dir.path()
            .join("etc/security/limits.d/90-virtengine-hpctenant.conf"),
    )
    .unwrap();
    assert_eq!(limits, "hpctenant - nproc 512\nhpctenant - nofile 4096\n");
    // Asked for again: there, and not made twice; asked for otherwise: refused.
    let again = done(&run(
        "task-2",
        "allocation.provision_user",
        &provision(&json!({})),
    ));
    assert_eq!(
        (again["existed"].as_bool(), again["uid"].as_u64()),
        (Some(true), Some(u64::from(uid)))
    );
    let other = run(
        "task-3",
        "allocation.provision_user",
        &provision(&json!({"allocation_id": "alloc-2"})),
    );
    assert_eq!(other.code.as_deref(), Some("resource_busy"));
    let wrong = run(
        "task-4",
        "allocation.deprovision_user",
        &json!({"allocation_id": "alloc-2", "username": "hpctenant"}),
    );
    assert_eq!(wrong.code.as_deref(), Some("resource_busy"));
    // One that obeys, one that does not, and a file where everybody writes.
    let mut children = [
        process_of(uid, "exec sleep 1000"),
        process_of(uid, "trap '' TERM; while :; do sleep 1; done"),
    ];
    let litter = Path::new("/dev/shm").join(format!("litter-{}", std::process::id()));
    fs::write(&litter, "secret").unwrap();
    chown(&litter, Some(uid), Some(uid)).unwrap();
    let stat = format!("/proc/{}/status", children[1].id());
    until("it ignores SIGTERM", Duration::from_secs(30), || {
        let text = fs::read_to_string(&stat).unwrap();
        let ignored = text.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
        (u64::from_str_radix(ignored.trim(), 16).unwrap() >> 14) & 1 == 1
    });
    let params = json!({"allocation_id": "alloc-1", "username": "hpctenant", "grace_seconds": 1});
    let ended = done(&run("task-5", "allocation.deprovision_user", &params));
    println!("deprovision: {ended}");
    assert_eq!(
        (ended["existed"].as_bool(), ended["verified"].as_bool()),
        (Some(true), Some(true))
    );
    assert!(
        ended["processes_killed"].as_u64().unwrap() >= 1 && ended["processes_ended"].as_u64().unwrap() >= 1
    );
    for child in &mut children {
        let mut ended = None;
        until("a process of the user is ended", Duration::from_secs(30), || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(!ended.unwrap().success());
    }
    assert!(entry(dir.path(), "hpctenant").is_none() && !litter.exists());
    assert!(!dir.path().join("home/hpctenant").exists());
    assert!(
        !dir.path()
            .join("etc/security/limits.d/90-virtengine-hpctenant.conf")
            .exists()
    );
    let again = done(&run("task-6", "allocation.deprovision_user", &params));
    assert_eq!(again["existed"], false);
    node.kill();
}

#[test]
fn system_users_and_ids_are_refused_and_left_alone() {
    let _alone = alone();
    let dir = site();
    let before = fs::read(dir.path().join("etc/passwd")).unwrap();
    let mut node = Apart::private(dir.path(), None);
    for (n, (change, code)) in [
        (json!({"username": "root"}), "resource_busy"),
        (json!({"username": "nobody"}), "resource_busy"),
        (json!({"username": "daemon"}), "resource_busy"),
        (json!({"uid": 1000}), "policy_denied"),
        (json!({"uid": 65534}), "policy_denied"),
        (json!({"uid": 0}), "invalid_field"),
        (json!({"username": "a:b"}), "invalid_field"),
        (
            json!({"ssh_public_keys": ["command=\"id\" ssh-ed25519 AAAA"]}),
            "invalid_field",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        node.deliver(&task(
            &format!("task-{n}"),
            "allocation.provision_user",
            &provision(&change),
        ));
        let result = node.result().unwrap();
        assert_eq!(
            result.code.as_deref(),
            Some(code),
            "{change}: {:?}",
            result.detail
        );
    }
    node.deliver(&task(
        "task-d",
        "allocation.deprovision_user",
        &json!({"allocation_id": "alloc-1", "username": "daemon"}),
    ));
    assert_eq!(node.result().unwrap().code.as_deref(), Some("policy_denied"));
    node.kill();
    assert_eq!(fs::read(dir.path().join("etc/passwd")).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 0);
}

#[test]
fn killed_at_any_moment_a_user_is_there_whole_or_not_at_all() {
    let _alone = alone();
    let runs: u64 = std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(5);
    let moments: Vec<u64> = if runs >= 100 {
        (1..=40).collect()
    } else {
        vec![8, 20, 28, 30]
    };
    let mut interrupted = 0;
    for n in moments {
        let dir = site();
        let mut killed = Apart::private(dir.path(), Some(&format!("task.journal:{n}")));
        let make = task("task-1", "allocation.provision_user", &provision(&json!({})));
        killed.deliver(&make);
        let ended = killed.result();
        interrupted += u32::from(ended.is_none());
        killed.kill();
        let mut node = Apart::private(dir.path(), None);
        node.deliver(&make);
        let result = node.result().unwrap();
        println!("moment {n}: {:?} {:?}", ended.map(|r| r.outcome), result.outcome);
        let whole = result.outcome == TaskOutcome::Completed;
        assert_eq!(
            entry(dir.path(), "hpctenant").is_some(),
            whole,
            "moment {n}: {:?}",
            result.detail
        );
        assert_eq!(dir.path().join("home/hpctenant").exists(), whole, "moment {n}");
        let groups = fs::read_to_string(dir.path().join("etc/group")).unwrap();
        assert_eq!(groups.contains("hpctenant:"), whole, "moment {n}");
        node.kill();
    }
    assert!(interrupted > 0);
}
