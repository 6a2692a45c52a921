//! What lies on the host and is in no journal: seen, set aside, taken away, as far as the policy goes; and what is in a
//! journal, or carries no mark of ours, is left alone.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use super::super::effect::process::{INSTANCE, MARK};
use super::super::policy::Orphans;
use super::super::safety::{Kind, Report, Safety, Standing, act, judge};
use super::super::{Host, Ledger, Policy, Steward};
use super::bench::*;
use crate::clock::Clock;

fn stage(dir: &Path, orphans: Orphans) -> Host {
    let mut host = host(dir);
    let mut policy = Policy::clone(&host.policy);
    policy.safety.orphans = orphans;
    // What lies in a folder that is named twice is found once.
    policy.machines.image_directories = vec![path(dir.join("images")); 2];
    fs::create_dir_all(dir.join("images")).unwrap();
    host.policy = Arc::new(policy);
    host.roots.etc = dir.join("etc");
    host.roots.sys = dir.join("sys");
    fs::create_dir_all(dir.join("etc/security/limits.d")).unwrap();
    let users = format!(
        "root:x:0:0::/root:/bin/sh\nalice:x:20000:20000:virtengine gone-1/3@{}:/home/alice:/bin/sh\n\
         bob:x:20001:20001:virtengine gone-1/3@another:/home/bob:/bin/sh\n",
        host.dir.instance()
    );
    fs::write(dir.join("etc/passwd"), users).unwrap();
    fs::write(dir.join("etc/group"), "root:x:0:\n").unwrap();
    host.dir.create().unwrap();
    host
}

fn ahead(seconds: u64) -> Clock {
    Clock::new(move || Clock::system().since_epoch() + Duration::from_secs(seconds))
}

fn sleeper(mark: &str, instance: &str) -> Child {
    Command::new("/bin/sleep")
        .arg("300")
        .env(MARK, mark)
        .env(INSTANCE, instance)
        .spawn()
        .unwrap()
}

fn names(report: &Report, kind: Kind) -> Vec<String> {
    let of = |o: &&super::super::safety::Orphan| o.found.kind == kind;
    report
        .orphans
        .iter()
        .filter(of)
        .map(|o| o.found.name.clone())
        .collect()
}

fn state(child: &Child) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn what_is_in_no_journal_is_seen_and_without_a_mark_of_ours_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    let host = stage(dir.path(), Orphans::Report);
    // A machine of a journal, and things of nobody's.
    let node = Node::with(host.clone(), Site::new());
    assert_eq!(code(&node.run(&launch(&node.site, "task-1", "vm-1"))), None);
    let machines = host.dir.machines();
    fs::create_dir(machines.join("vm-lost")).unwrap();
    fs::write(machines.join("vm-lost/disk.qcow2"), "x").unwrap();
    fs::create_dir(machines.join(".ve-gone-1-4.new")).unwrap();
    // What was being fetched, here and by another node.
    let images = dir.path().join("images");
    let fetched = images.join(format!(".ve-{}-gone-1-4.new", host.dir.tag()));
    fs::write(&fetched, "x").unwrap();
    fs::write(images.join(".ve-another-gone-1-4.new"), "x").unwrap();
    let limits = dir.path().join("etc/security/limits.d");
    for user in ["carol", "alice"] {
        fs::write(limits.join(format!("90-virtengine-{user}.conf")), "").unwrap();
    }
    fs::write(limits.join("10-site.conf"), "").unwrap();
    let mut ours = sleeper("gone-1/2", &host.dir.instance());
    let mut theirs = sleeper("gone-1/2", "another");
    let mut children = [&mut ours, &mut theirs];
    let report = judge(&host, node.domain.ledger(), &Report::default());
    let path = |p: &str| machines.join(p).display().to_string();
    assert_eq!(names(&report, Kind::Machine), [path("vm-lost")]);
    let unfinished = [fetched.display().to_string(), path(".ve-gone-1-4.new")];
    assert_eq!(names(&report, Kind::Unfinished), unfinished);
    assert_eq!(names(&report, Kind::User), ["alice"]);
    assert_eq!(names(&report, Kind::Limits).len(), 1);
    let processes = names(&report, Kind::Process);
    assert_eq!(processes.len(), 1);
    assert!(processes[0].starts_with(&format!("{}@", children[0].id())));
    assert!(report.unclear.is_empty() && report.left.is_empty() && report.missing.is_empty());
    // A policy that only reports.
    let mut later = Report {
        at: report.at + 1_000_000,
        ..report.clone()
    };
    act(&host, &mut later);
    assert_eq!(later.orphans, report.orphans);
    // What is held and gone is said.
    fs::remove_file(machines.join("vm-1.lease")).unwrap();
    let report = judge(&host, node.domain.ledger(), &report);
    assert_eq!(report.missing.len(), 1, "{:?}", report.missing);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_journal_that_cannot_be_read_protects_what_may_be_its_task_s() {
    let dir = tempfile::tempdir().unwrap();
    let host = stage(dir.path(), Orphans::Remove);
    fs::write(host.dir.journal().join("gone-1.log"), "damaged\nfor\ngood\n").unwrap();
    fs::create_dir(host.dir.machines().join("vm-lost")).unwrap();
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    let before = judge(&host, &ledger, &Report::default());
    assert!(before.orphans.is_empty(), "{before:?}");
    assert_eq!((before.unclear.len(), before.damaged.len()), (2, 1));
    let mut report = judge(&host, &ledger, &before);
    act(&host, &mut report);
    assert!(host.dir.machines().join("vm-lost").exists());
}

#[test]
fn orphans_are_set_aside_when_they_are_seen_again_and_removed_when_their_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = stage(dir.path(), Orphans::Remove);
    fs::write(dir.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    let lost = host.dir.machines().join("vm-lost");
    fs::create_dir(&lost).unwrap();
    fs::write(lost.join("disk.qcow2"), "x").unwrap();
    let mut child = sleeper("gone-1/2", &host.dir.instance());
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    let at = |host: &mut Host, seconds: u64| host.clock = ahead(seconds);
    let mut report = judge(&host, &ledger, &Report::default());
    act(&host, &mut report);
    assert!(lost.exists() && state(&child) != 'T', "once seen is not enough");
    at(&mut host, 20);
    let mut report = judge(&host, &ledger, &report);
    act(&host, &mut report);
    assert!(
        report
            .orphans
            .iter()
            .all(|o| o.standing == Standing::SetAside && o.trouble.is_none())
    );
    assert!(!lost.exists());
    assert_eq!(fs::read_dir(host.dir.quarantine()).unwrap().count(), 1);
    until("the process stands still", || state(&child) == 'T');
    // Something new of that name is another thing.
    fs::create_dir(&lost).unwrap();
    at(&mut host, 40);
    let mut report = judge(&host, &ledger, &report);
    act(&host, &mut report);
    assert_eq!(report.orphans.len(), 3);
    assert!(lost.exists());
    at(&mut host, 169 * 3600);
    let mut report = judge(&host, &ledger, &report);
    act(&host, &mut report);
    let mut ended = None;
    until("the process is ended", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().signal(), Some(9));
    let names: Vec<_> = report.orphans.iter().map(|o| o.standing).collect();
    assert_eq!(names, [Standing::SetAside], "the newer folder has its own week");
    assert_eq!(fs::read_dir(host.dir.quarantine()).unwrap().count(), 1);
}

#[test]
fn the_loop_writes_down_what_it_saw_and_goes_on_from_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = stage(dir.path(), Orphans::Quarantine);
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    fs::create_dir(host.dir.machines().join("vm-lost")).unwrap();
    let pause = Safety::default().look(&host, &ledger);
    assert_eq!(pause, Duration::from_secs(10));
    let seen = Report::load(&host.dir).unwrap().unwrap();
    assert_eq!(names(&seen, Kind::Machine).len(), 1);
    host.clock = ahead(60);
    Safety::default().look(&host, &ledger);
    let seen = Report::load(&host.dir).unwrap().unwrap();
    assert_eq!(seen.orphans[0].standing, Standing::SetAside);
    assert!(!host.dir.machines().join("vm-lost").exists());
}

#[test]
fn in_folders_that_several_nodes_share_only_what_this_one_has_made_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = stage(dir.path(), Orphans::Remove);
    fs::write(dir.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    let shared = |name: &str| {
        fs::create_dir(dir.path().join(name)).unwrap();
        path(dir.path().join(name).to_str().unwrap())
    };
    let (dhcp, telemetry) = (shared("dhcp"), shared("telemetry"));
    let mut policy = Policy::clone(&host.policy);
    policy.slices.dhcp_hosts = Some(dhcp.clone());
    policy.slices.telemetry = Some(telemetry.clone());
    host.policy = Arc::new(policy);
    // The same folder of tasks everywhere: the default of each node.
    let of = |cluster: &str, node: &str| {
        let plain = super::super::TaskDir::new(host.dir.path());
        plain.of(&cluster.parse().unwrap(), &node.parse().unwrap())
    };
    let (ours, others) = (
        of("hpc-cluster-1", "node-1"),
        [
            of("hpc-cluster-1", "node-2"),
            of("hpc-cluster-2", "node-1"),
            of("hpc-cluster-1n", "ode-1"),
        ],
    );
    let tags: std::collections::BTreeSet<String> = others
        .iter()
        .chain([&ours])
        .map(super::super::TaskDir::tag)
        .collect();
    assert_eq!(tags.len(), 4);
    let earlier = host.dir.instance();
    let put = |tag: &str| {
        let words = format!("virtengine gone-1/9@{tag}");
        fs::write(format!("{dhcp}/slice-{tag}"), format!("# {words}\n")).unwrap();
        let target = format!("[{{\"labels\":{{\"__virtengine\":\"{words}\"}}}}]");
        fs::write(format!("{telemetry}/slice-{tag}.json"), target).unwrap();
        fs::write(format!("{dhcp}/.ve-{tag}-gone-1-4.new"), "").unwrap();
    };
    tags.iter().for_each(|t| put(t));
    put(&earlier);
    fs::write(format!("{dhcp}/.ve-gone-1-5.new"), "").unwrap();
    host.dir = ours;
    let count =
        || fs::read_dir(dhcp.as_str()).unwrap().count() + fs::read_dir(telemetry.as_str()).unwrap().count();
    let before = count();
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    let mut report = Report::default();
    for seconds in [0, 20, 169 * 3600] {
        host.clock = ahead(seconds);
        report = judge(&host, &ledger, &report);
        let mut kinds: Vec<Kind> = report.orphans.iter().map(|o| o.found.kind).collect();
        kinds.sort();
        assert_eq!(
            kinds,
            [Kind::Unfinished, Kind::Reservation, Kind::Target],
            "{report:#?}"
        );
        act(&host, &mut report);
    }
    assert!(report.orphans.is_empty(), "{report:#?}");
    assert_eq!(count(), before - 3);
    let tag = host.dir.tag();
    for gone in [
        format!("{dhcp}/slice-{tag}"),
        format!("{telemetry}/slice-{tag}.json"),
        format!("{dhcp}/.ve-{tag}-gone-1-4.new"),
    ] {
        assert!(!Path::new(&gone).exists(), "{gone}");
    }
}
