mod hidden;
mod lists;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

/// The wall clock when a test begins.
const UNIX: u64 = 1_795_303_803;

/// A node whose programs of Slurm print what was recorded; `scontrol` also writes down how it was called.
struct Site {
    dir: tempfile::TempDir,
    roots: Roots,
    config: SlurmConfig,
}

impl Site {
    /// Nothing says that the node belongs to Slurm.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let config = SlurmConfig {
            bin_dir: Some(dir.path().join("bin")),
            ..SlurmConfig::default()
        };
        fs::create_dir_all(roots.proc.join("sys/kernel")).unwrap();
        fs::write(roots.proc.join("sys/kernel/hostname"), "vm.example.org\n").unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        let site = Self { dir, roots, config };
        let called = site.path("called");
        let node = fixture("node-mixed-22.05.txt");
        let script = format!(
            "echo \"$SLURM_CONF $*\" >> {}; cat {}",
            called.display(),
            node.display()
        );
        site.does("scontrol", &script);
        site.prints("squeue", &fixture("queue-22.05.txt"));
        site
    }

    /// Its configuration says so.
    fn configured() -> Self {
        let site = Self::new();
        site.configure();
        site
    }

    fn configure(&self) {
        fs::create_dir_all(self.roots.etc.join("slurm")).unwrap();
        fs::write(self.roots.etc.join("slurm/slurm.conf"), "").unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a program does from here on.
    fn does(&self, program: &str, script: &str) {
        let path = self.path("bin").join(program);
        crate::stand_in::stand_in(&path, &format!("#!/bin/sh\n{script}\n"));
    }

    fn prints(&self, program: &str, file: &Path) {
        self.does(program, &format!("cat {}", file.display()));
    }

    /// A process of the node.
    fn runs(&self, pid: u32, name: &str, arguments: &str) {
        let process = self.roots.proc.join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), format!("{name}\n")).unwrap();
        fs::write(process.join("cmdline"), arguments).unwrap();
    }

    fn ends(&self, pid: u32) {
        fs::remove_dir_all(self.roots.proc.join(pid.to_string())).unwrap();
    }

    fn node(&self) -> NodeProbe {
        NodeProbe::new(self.config.clone(), &self.roots)
    }

    fn jobs(&self) -> JobsProbe {
        JobsProbe::new(self.config.clone(), &self.roots, self.path("jobs.json"))
    }

    /// Side by side, as the agent has them.
    fn both(&self) -> (NodeProbe, JobsProbe) {
        let last = LastNode::default();
        (self.node().telling(last.clone()), self.jobs().beside(last))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// How often a program has left a line there.
    fn count(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }

    /// 5,000 jobs that wait somewhere, one that runs here, some that have ended elsewhere, whom the controller remembers for
    /// so long, and an array whose first job it remembers longer.
    fn large(&self, unix: u64, remembers: u64) {
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
        fs::write(self.path("queue.txt"), text).unwrap();
        self.counts(&format!("cat {}", self.path("queue.txt").display()));
    }

    /// As `squeue` from here on, whose calls are counted.
    fn counts(&self, script: &str) {
        let listed = self.path("listed");
        self.does("squeue", &format!("echo x >> {}; {script}", listed.display()));
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/slurm")
        .join(name)
}

fn said<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Said(said) => said,
        Answer::Silent | Answer::NotHere => panic!("nothing is said"),
    }
}

#[test]
fn without_slurm_nothing_is_started() {
    let mut site = Site::new();
    let now = Instant::now();
    assert_eq!(site.node().read(now), Answer::NotHere);
    site.configure();
    site.config.enabled = Some(false);
    assert_eq!(site.node().read(now), Answer::NotHere);
    assert!(!site.path("called").exists());
    site.config.enabled = None;
    let node = said(site.node().read(now));
    assert_eq!((node.cpus, node.gpus_allocated), (2, Some(1)));
    assert_eq!(site.read("called").trim(), "--oneliner --details show node vm");
}

#[test]
fn a_node_has_the_name_that_slurmd_was_started_with_or_the_configured_one() {
    let mut site = Site::new();
    site.runs(1, "systemd", "");
    site.runs(4711, "slurmd", "/usr/sbin/slurmd\0-D\0-N\0gpu07\0");
    let mut probe = site.node();
    assert_eq!(probe.0.node().as_deref(), Some("gpu07"));
    // The controller does not know it: silence, and no second question at once.
    let now = Instant::now();
    assert_eq!(probe.read(now), Answer::Silent);
    assert_eq!(probe.read(now), Answer::Silent);
    assert_eq!(site.count("called"), 1);
    assert_eq!(probe.read(now + Duration::from_secs(16)), Answer::Silent);
    assert_eq!(site.count("called"), 2);
    site.config.node_name = Some("vm".into());
    site.config.conf = Some("/x/slurm.conf".into());
    assert!(matches!(site.node().read(now), Answer::Said(_)));
    assert!(site.read("called").contains("/x/slurm.conf --oneliner"));
}

#[test]
fn ends_of_jobs_are_kept_over_a_restart() {
    let site = Site::configured();
    let now = Instant::now();
    let jobs = said(site.jobs().read(now, UNIX));
    assert_eq!((jobs.active, jobs.pending), (vec![7], Some(1)));
    let ended = jobs.ended.unwrap();
    assert_eq!((ended.completed, ended.failed, ended.withdrawn), (2, 1, 1));
    site.does("squeue", "exit 0");
    let jobs = said(site.jobs().read(now, UNIX + 60));
    let ended = jobs.ended.unwrap();
    assert_eq!(
        (ended.completed, ended.failed, ended.unknown, jobs.since),
        (2, 1, 1, UNIX)
    );
    // A damaged file starts anew and says so by `since`.
    fs::write(site.path("jobs.json"), "{").unwrap();
    let jobs = said(site.jobs().read(now, UNIX + 90));
    assert_eq!((jobs.ended.unwrap().completed, jobs.since), (0, UNIX + 90));
}

#[test]
fn without_the_controller_running_jobs_are_known_from_their_processes() {
    let site = Site::configured();
    site.does("squeue", "exit 1");
    let now = Instant::now();
    let mut probe = site.jobs();
    assert_eq!(probe.read(now, UNIX), Answer::Silent);
    site.runs(50, "slurmstepd", "slurmstepd: [4711.batch]");
    site.runs(51, "slurmstepd", "slurmstepd: [4711.0]");
    site.runs(52, "slurmstepd", "slurmstepd: [12.extern]");
    let jobs = said(probe.read(now, UNIX));
    assert_eq!((jobs.active, jobs.pending), (vec![12, 4711], None));
    let mut after = |seconds| said(probe.read(now + Duration::from_secs(seconds), UNIX + seconds));
    // A controller that hides other users' jobs says that nothing runs: what waits and what has ended is not known then.
    site.does("squeue", "exit 0");
    let jobs = after(60);
    assert_eq!(
        (jobs.active, jobs.pending, jobs.ended),
        (vec![12, 4711], None, None)
    );
    // Nor when the last of them is gone, until the controller shows one.
    for pid in [50, 51, 52] {
        site.ends(pid);
    }
    let jobs = after(120);
    assert_eq!((jobs.active, jobs.pending, jobs.ended), (vec![], None, None));
    site.does("squeue", "echo '9|RUNNING|NONE|vm||(null)'");
    let jobs = after(180);
    assert_eq!((jobs.active, jobs.pending), (vec![9], Some(0)));
    assert!(jobs.ended.is_some());
}

#[test]
fn a_restart_remembers_that_nothing_ran_only_if_the_controller_has_shown_it() {
    let site = Site::configured();
    let now = Instant::now();
    let active = || remembered(site.dir.path(), UNIX).map(|jobs| jobs.active);
    assert_eq!(active(), None);
    site.does("squeue", "exit 1");
    assert_eq!(site.jobs().read(now, UNIX), Answer::Silent);
    assert!(site.path("jobs.json").exists());
    assert_eq!(active(), None);
    site.does("squeue", "echo '9|RUNNING|NONE|vm||(null)'");
    assert_eq!(said(site.jobs().read(now, UNIX)).active, [9]);
    assert_eq!(active(), Some(vec![9]));
    site.does("squeue", "exit 0");
    assert!(said(site.jobs().read(now, UNIX)).active.is_empty());
    assert_eq!(active(), Some(Vec::new()));
    // The controller is silent: nothing has changed until a job's process shows that something runs.
    site.does("squeue", "exit 1");
    assert_eq!(site.jobs().read(now, UNIX), Answer::Silent);
    assert_eq!(active(), Some(Vec::new()));
    site.runs(50, "slurmstepd", "slurmstepd: [4711.batch]");
    assert_eq!(said(site.jobs().read(now, UNIX)).active, [4711]);
    assert_eq!(active(), None);
    // Nor does an empty list of a controller that hides jobs say that nothing runs.
    site.does("squeue", "exit 0");
    assert_eq!(said(site.jobs().read(now, UNIX)).active, [4711]);
    assert_eq!(active(), None);
    site.ends(50);
    assert!(said(site.jobs().read(now, UNIX)).active.is_empty());
    assert_eq!(active(), Some(Vec::new()));
}

/// Configless: the controller gives slurmd its configuration, and no file of it lies on the node.
#[test]
fn a_node_without_a_configuration_belongs_to_slurm_while_its_daemon_is_down() {
    let mut site = Site::new();
    let ledger = site.path("jobs.json");
    site.config.seen = Some(ledger.clone());
    let now = Instant::now();
    site.runs(1, "systemd", "");
    assert_eq!(site.node().read(now), Answer::NotHere);
    assert_eq!(site.jobs().read(now, UNIX), Answer::NotHere);
    assert!(!ledger.exists());

    // It runs, and the controller does not answer: nothing but the daemon says so.
    site.does("scontrol", "exit 1");
    site.does("squeue", "exit 1");
    site.runs(4711, "slurmd", "/opt/slurm/sbin/slurmd\0-D\0-N\0gpu07\0");
    let (mut node, mut jobs) = (site.node(), site.jobs());
    assert_eq!(node.read(now), Answer::Silent);
    assert_eq!(jobs.read(now, UNIX), Answer::Silent);
    site.ends(4711);
    assert_eq!(node.read(now), Answer::Silent);
    assert_eq!(node.0.node().as_deref(), Some("gpu07"));
    assert_eq!(jobs.read(now, UNIX), Answer::Silent);

    // The agent starts anew meanwhile.
    assert_eq!(site.node().read(now), Answer::Silent);
    assert_eq!(site.jobs().read(now, UNIX), Answer::Silent);
    // It remembers nothing, and a job runs on.
    fs::remove_file(&ledger).unwrap();
    site.runs(50, "slurmstepd", "slurmstepd: [4711.batch]");
    assert_eq!(site.node().read(now), Answer::Silent);
    assert_eq!(said(site.jobs().read(now, UNIX)).active, [4711]);
    // The administrator's word ends it.
    site.config.enabled = Some(false);
    assert_eq!(site.node().read(now), Answer::NotHere);
}
