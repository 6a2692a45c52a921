use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;

/// Programs that print what was recorded; `scontrol` also writes down how it was called.
fn site(dir: &Path) -> (Roots, SlurmConfig) {
    let roots = Roots::below(dir);
    fs::create_dir_all(roots.proc.join("sys/kernel")).unwrap();
    fs::write(roots.proc.join("sys/kernel/hostname"), "vm.example.org\n").unwrap();
    fs::create_dir_all(dir.join("bin")).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/slurm");
    let program = |name: &str, text: String| {
        let path = dir.join("bin").join(name);
        crate::stand_in::stand_in(&path, &format!("#!/bin/sh\n{text}\n"));
    };
    let called = dir.join("called");
    program(
        "scontrol",
        format!(
            "echo \"$SLURM_CONF $*\" >> {}; cat {}/node-mixed-22.05.txt",
            called.display(),
            fixtures.display()
        ),
    );
    program("squeue", format!("cat {}/queue-22.05.txt", fixtures.display()));
    let config = SlurmConfig {
        bin_dir: Some(dir.join("bin")),
        ..SlurmConfig::default()
    };
    (roots, config)
}

fn configured(roots: &Roots) {
    fs::create_dir_all(roots.etc.join("slurm")).unwrap();
    fs::write(roots.etc.join("slurm/slurm.conf"), "").unwrap();
}

#[test]
fn without_slurm_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    let now = Instant::now();
    assert_eq!(NodeProbe::new(config.clone(), &roots).read(now), Answer::NotHere);
    configured(&roots);
    let off = SlurmConfig {
        enabled: Some(false),
        ..config.clone()
    };
    assert_eq!(NodeProbe::new(off, &roots).read(now), Answer::NotHere);
    assert!(!dir.path().join("called").exists());
    let Answer::Said(node) = NodeProbe::new(config, &roots).read(now) else {
        panic!()
    };
    assert_eq!((node.cpus, node.gpus_allocated), (2, Some(1)));
    let called = fs::read_to_string(dir.path().join("called")).unwrap();
    assert_eq!(called.trim(), "--oneliner --details show node vm");
}

#[test]
fn a_node_has_the_name_that_slurmd_was_started_with_or_the_configured_one() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    let process = roots.proc.join("4711");
    fs::create_dir_all(&process).unwrap();
    fs::create_dir_all(roots.proc.join("1")).unwrap();
    fs::write(roots.proc.join("1/comm"), "systemd\n").unwrap();
    fs::write(process.join("comm"), "slurmd\n").unwrap();
    fs::write(process.join("cmdline"), "/usr/sbin/slurmd\0-D\0-N\0gpu07\0").unwrap();
    let mut probe = NodeProbe::new(config.clone(), &roots);
    assert_eq!(probe.0.node().as_deref(), Some("gpu07"));
    // The controller does not know it: silence, and no second question at once.
    let now = Instant::now();
    assert_eq!(probe.read(now), Answer::Silent);
    assert_eq!(probe.read(now), Answer::Silent);
    assert_eq!(
        fs::read_to_string(dir.path().join("called"))
            .unwrap()
            .lines()
            .count(),
        1
    );
    assert_eq!(probe.read(now + Duration::from_secs(16)), Answer::Silent);
    assert_eq!(
        fs::read_to_string(dir.path().join("called"))
            .unwrap()
            .lines()
            .count(),
        2
    );
    let named = SlurmConfig {
        node_name: Some("vm".into()),
        conf: Some("/x/slurm.conf".into()),
        ..config
    };
    assert!(matches!(NodeProbe::new(named, &roots).read(now), Answer::Said(_)));
    assert!(
        fs::read_to_string(dir.path().join("called"))
            .unwrap()
            .contains("/x/slurm.conf --oneliner")
    );
}

#[test]
fn ends_of_jobs_are_kept_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    configured(&roots);
    let path = dir.path().join("jobs.json");
    let now = Instant::now();
    let unix = 1_795_303_803;
    let mut probe = JobsProbe::new(config.clone(), &roots, path.clone());
    let Answer::Said(jobs) = probe.read(now, unix) else {
        panic!()
    };
    assert_eq!((jobs.active, jobs.pending), (vec![7], Some(1)));
    let ended = jobs.ended.unwrap();
    assert_eq!((ended.completed, ended.failed, ended.withdrawn), (2, 1, 1));
    crate::stand_in::stand_in(&dir.path().join("bin/squeue"), "#!/bin/sh\nexit 0\n");
    let mut probe = JobsProbe::new(config.clone(), &roots, path.clone());
    let Answer::Said(jobs) = probe.read(now, unix + 60) else {
        panic!()
    };
    let ended = jobs.ended.unwrap();
    assert_eq!(
        (ended.completed, ended.failed, ended.unknown, jobs.since),
        (2, 1, 1, unix)
    );
    // A damaged file starts anew and says so by `since`.
    fs::write(&path, "{").unwrap();
    let Answer::Said(jobs) = JobsProbe::new(config, &roots, path).read(now, unix + 90) else {
        panic!()
    };
    assert_eq!((jobs.ended.unwrap().completed, jobs.since), (0, unix + 90));
}

#[test]
fn without_the_controller_running_jobs_are_known_from_their_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    configured(&roots);
    crate::stand_in::stand_in(&dir.path().join("bin/squeue"), "#!/bin/sh\nexit 1\n");
    let path = dir.path().join("jobs.json");
    let now = Instant::now();
    let mut probe = JobsProbe::new(config, &roots, path);
    assert_eq!(probe.read(now, 1_795_303_803), Answer::Silent);
    for (pid, step) in [
        (50, "slurmstepd: [4711.batch]"),
        (51, "slurmstepd: [4711.0]"),
        (52, "slurmstepd: [12.extern]"),
    ] {
        let process = roots.proc.join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), "slurmstepd\n").unwrap();
        fs::write(process.join("cmdline"), step).unwrap();
    }
    let Answer::Said(jobs) = probe.read(now, 1_795_303_803) else {
        panic!()
    };
    assert_eq!((jobs.active, jobs.pending), (vec![12, 4711], None));
    // A controller that hides other users' jobs says that nothing runs: what waits and what has ended is not known then.
    crate::stand_in::stand_in(&dir.path().join("bin/squeue"), "#!/bin/sh\nexit 0\n");
    let Answer::Said(jobs) = probe.read(now + Duration::from_secs(60), 1_795_303_863) else {
        panic!()
    };
    assert_eq!(
        (jobs.active, jobs.pending, jobs.ended),
        (vec![12, 4711], None, None)
    );
    // Nor when the last of them is gone, until the controller shows one.
    for pid in ["50", "51", "52"] {
        fs::remove_dir_all(roots.proc.join(pid)).unwrap();
    }
    let Answer::Said(jobs) = probe.read(now + Duration::from_secs(120), 1_795_303_923) else {
        panic!()
    };
    assert_eq!((jobs.active, jobs.pending, jobs.ended), (vec![], None, None));
    crate::stand_in::stand_in(
        &dir.path().join("bin/squeue"),
        "#!/bin/sh\necho '9|RUNNING|NONE|vm||(null)'\n",
    );
    let Answer::Said(jobs) = probe.read(now + Duration::from_secs(180), 1_795_303_983) else {
        panic!()
    };
    assert_eq!((jobs.active, jobs.pending), (vec![9], Some(0)));
    assert!(jobs.ended.is_some());
}

/// Configless: the controller gives slurmd its configuration, and no file of it lies on the node.
#[test]
fn a_node_without_a_configuration_belongs_to_slurm_while_its_daemon_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    let ledger = dir.path().join("jobs.json");
    let config = SlurmConfig {
        seen: Some(ledger.clone()),
        ..config
    };
    let (now, unix) = (Instant::now(), 1_795_303_803);
    let slurmd = roots.proc.join("4711");
    let process = |pid: &str, comm: &str, cmdline: &str| {
        fs::create_dir_all(roots.proc.join(pid)).unwrap();
        fs::write(roots.proc.join(pid).join("comm"), format!("{comm}\n")).unwrap();
        fs::write(roots.proc.join(pid).join("cmdline"), cmdline).unwrap();
    };
    fs::create_dir_all(roots.proc.join("1")).unwrap();
    fs::write(roots.proc.join("1/comm"), "systemd\n").unwrap();
    assert_eq!(NodeProbe::new(config.clone(), &roots).read(now), Answer::NotHere);
    let mut jobs = JobsProbe::new(config.clone(), &roots, ledger.clone());
    assert_eq!(jobs.read(now, unix), Answer::NotHere);
    assert!(!ledger.exists());

    // It runs, and the controller does not answer: nothing but the daemon says so.
    for program in ["scontrol", "squeue"] {
        crate::stand_in::stand_in(&dir.path().join("bin").join(program), "#!/bin/sh\nexit 1\n");
    }
    process("4711", "slurmd", "/opt/slurm/sbin/slurmd\0-D\0-N\0gpu07\0");
    let mut node = NodeProbe::new(config.clone(), &roots);
    assert_eq!(node.read(now), Answer::Silent);
    let mut jobs = JobsProbe::new(config.clone(), &roots, ledger.clone());
    assert_eq!(jobs.read(now, unix), Answer::Silent);
    fs::remove_dir_all(&slurmd).unwrap();
    assert_eq!(node.read(now), Answer::Silent);
    assert_eq!(node.0.node().as_deref(), Some("gpu07"));
    assert_eq!(jobs.read(now, unix), Answer::Silent);

    // The agent starts anew meanwhile.
    assert_eq!(NodeProbe::new(config.clone(), &roots).read(now), Answer::Silent);
    assert_eq!(
        JobsProbe::new(config.clone(), &roots, ledger.clone()).read(now, unix),
        Answer::Silent
    );
    // It remembers nothing, and a job runs on.
    fs::remove_file(&ledger).unwrap();
    process("50", "slurmstepd", "slurmstepd: [4711.batch]");
    assert_eq!(NodeProbe::new(config.clone(), &roots).read(now), Answer::Silent);
    let Answer::Said(found) = JobsProbe::new(config.clone(), &roots, ledger.clone()).read(now, unix) else {
        panic!()
    };
    assert_eq!(found.active, [4711]);
    // The administrator's word ends it.
    let off = SlurmConfig {
        enabled: Some(false),
        ..config
    };
    assert_eq!(NodeProbe::new(off, &roots).read(now), Answer::NotHere);
}

/// 5,000 jobs that wait somewhere, one that runs here, some that have ended elsewhere, whom the controller remembers for so
/// long, and an array whose first job it remembers longer.
fn large(dir: &Path, unix: u64, remembers: u64) {
    let mut text: String = (100..5_100)
        .map(|n| format!("{n}|PENDING|NONE|||(null)\n"))
        .collect();
    text += "7|RUNNING|NONE|vm||(null)\n8|PENDING|NONE||vm|(null)\n";
    text += &format!("9|COMPLETED|{}|other||(null)\n", unix - 30_000);
    for n in [1, 3, 5, 7, 9] {
        text += &format!(
            "{}|COMPLETED|{}|other||(null)\n",
            10 + n,
            unix - remembers * n / 10
        );
    }
    fs::write(dir.join("queue.txt"), text).unwrap();
    let script = format!(
        "#!/bin/sh\necho x >> {0}/listed; cat {0}/queue.txt\n",
        dir.display()
    );
    crate::stand_in::stand_in(&dir.join("bin/squeue"), &script);
}

fn lists(dir: &Path) -> usize {
    fs::read_to_string(dir.join("listed")).map_or(0, |t| t.lines().count())
}

#[test]
fn the_jobs_of_a_large_cluster_are_listed_when_something_changes_here_and_now_and_then() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    configured(&roots);
    let (start, unix) = (Instant::now(), 1_795_303_803);
    large(dir.path(), unix, 300);
    let last = LastNode::default();
    let mut node = NodeProbe::new(config.clone(), &roots).telling(last.clone());
    let mut jobs = JobsProbe::new(config, &roots, dir.path().join("jobs.json")).beside(last);
    // Each minute, as the agent does; what it says, and how often it has listed them.
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        drop(node.read(now));
        let said = match jobs.read(now, unix + seconds) {
            Answer::Said(said) => Some(said),
            Answer::Silent => None,
            Answer::NotHere => panic!(),
        };
        if let Some(said) = &said {
            assert!(said.ended.is_some() && said.active == [7], "{said:?}");
        }
        (said.and_then(|s| s.pending), lists(dir.path()))
    };
    assert_eq!(at(0), (Some(1), 1));
    assert_eq!(at(60), (Some(1), 1));
    assert_eq!(at(120), (Some(1), 2));
    // The node's record is another one: a job may have begun or ended.
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/slurm");
    let shows = |name: &str| {
        let script = format!("#!/bin/sh\ncat {}/{name}\n", fixtures.display());
        crate::stand_in::stand_in(&dir.path().join("bin/scontrol"), &script);
    };
    shows("node-draining-22.05.txt");
    assert_eq!(at(180), (Some(1), 3));
    assert_eq!(at(240), (Some(1), 3));
    // Once the record cannot be had, nothing is left to what was known, and the controller is asked no more often for that.
    crate::stand_in::stand_in(&dir.path().join("bin/scontrol"), "#!/bin/sh\nexit 1\n");
    assert_eq!(at(290), (None, 3));
    assert_eq!(at(350), (Some(1), 4));
    assert_eq!(at(410), (None, 4));
    assert_eq!(at(470), (Some(1), 5));
    // A controller that forgets soon is asked each time: no end may be missed.
    shows("node-mixed-22.05.txt");
    large(dir.path(), unix + 800, 90);
    assert_eq!(at(800), (Some(1), 6));
    assert_eq!(at(860), (Some(1), 7));
}

#[test]
fn no_end_of_a_job_is_missed_on_a_large_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    configured(&roots);
    let (start, unix) = (Instant::now(), 1_795_303_803);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/slurm");
    let mixed = fs::read_to_string(fixtures.join("node-mixed-22.05.txt")).unwrap();
    let shows = |cpus: u32| {
        let text = mixed.replace("CPUAlloc=1", &format!("CPUAlloc={cpus}"));
        fs::write(dir.path().join("node.txt"), text).unwrap();
    };
    shows(1);
    let script = format!("#!/bin/sh\ncat {}/node.txt\n", dir.path().display());
    crate::stand_in::stand_in(&dir.path().join("bin/scontrol"), &script);
    large(dir.path(), unix, 300);
    let queue = fs::read_to_string(dir.path().join("queue.txt")).unwrap();
    let runs = |lines: &str| {
        let text = queue.replace("7|RUNNING|NONE|vm||(null)\n", lines);
        fs::write(dir.path().join("queue.txt"), text).unwrap();
    };
    let last = LastNode::default();
    let mut node = NodeProbe::new(config.clone(), &roots).telling(last.clone());
    let mut jobs = JobsProbe::new(config, &roots, dir.path().join("jobs.json")).beside(last);
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        assert!(matches!(node.read(now), Answer::Said(_)));
        let Answer::Said(said) = jobs.read(now, unix + seconds) else {
            panic!()
        };
        let ended = said.ended.unwrap();
        assert_eq!((ended.failed, ended.withdrawn, ended.unknown), (0, 0, 0));
        (said.active, ended.completed, lists(dir.path()))
    };
    assert_eq!(at(0), (vec![7], 0, 1));
    // One that makes room for another of the same size leaves the record as it was: it is found with the next list.
    let seven = format!("7|COMPLETED|{}|vm||(null)\n", unix + 50);
    runs(&format!("{seven}8000|RUNNING|NONE|vm||(null)\n"));
    assert_eq!(at(60), (vec![7], 0, 1));
    assert_eq!(at(120), (vec![8000], 1, 2));
    // The record tells of one after which the node is free.
    shows(0);
    runs(&format!("{seven}8000|COMPLETED|{}|vm||(null)\n", unix + 170));
    assert_eq!(at(180), (vec![], 2, 3));
    assert_eq!(at(240), (vec![], 2, 3));
}

#[test]
fn the_jobs_of_a_small_cluster_are_listed_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, config) = site(dir.path());
    configured(&roots);
    let script = format!(
        "#!/bin/sh\necho x >> {}/listed; echo '7|RUNNING|NONE|vm||(null)'\n",
        dir.path().display()
    );
    crate::stand_in::stand_in(&dir.path().join("bin/squeue"), &script);
    let last = LastNode::default();
    let mut node = NodeProbe::new(config.clone(), &roots).telling(last.clone());
    let mut jobs = JobsProbe::new(config, &roots, dir.path().join("jobs.json")).beside(last);
    let start = Instant::now();
    for n in 0..3 {
        let now = start + Duration::from_secs(n * 60);
        assert!(matches!(node.read(now), Answer::Said(_)));
        assert!(matches!(jobs.read(now, 1_795_303_803 + n * 60), Answer::Said(_)));
        assert_eq!(lists(dir.path()), usize::try_from(n).unwrap() + 1);
    }
}
