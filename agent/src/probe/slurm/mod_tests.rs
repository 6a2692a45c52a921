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

#[test]
fn the_jobs_of_a_large_cluster_are_listed_when_something_changes_here_and_now_and_then() {
    let site = Site::configured();
    let start = Instant::now();
    site.large(UNIX, 300);
    let (mut node, mut jobs) = site.both();
    // Each minute, as the agent does; what it says, and how often it has listed them.
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        drop(node.read(now));
        let said = match jobs.read(now, UNIX + seconds) {
            Answer::Said(said) => Some(said),
            Answer::Silent => None,
            Answer::NotHere => panic!(),
        };
        if let Some(said) = &said {
            assert!(said.ended.is_some() && said.active == [7], "{said:?}");
        }
        (said.and_then(|s| s.pending), site.count("listed"))
    };
    assert_eq!(at(0), (Some(1), 1));
    assert_eq!(at(60), (Some(1), 1));
    assert_eq!(at(120), (Some(1), 2));
    // The node's record is another one: a job may have begun or ended.
    site.prints("scontrol", &fixture("node-draining-22.05.txt"));
    assert_eq!(at(180), (Some(1), 3));
    assert_eq!(at(240), (Some(1), 3));
    // Once the record cannot be had, nothing is left to what was known, and the controller is asked no more often for that.
    site.does("scontrol", "exit 1");
    assert_eq!(at(290), (None, 3));
    assert_eq!(at(350), (Some(1), 4));
    assert_eq!(at(410), (None, 4));
    assert_eq!(at(470), (Some(1), 5));
    // A controller that forgets soon is asked each time: no end may be missed.
    site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
    site.large(UNIX + 800, 90);
    assert_eq!(at(800), (Some(1), 6));
    assert_eq!(at(860), (Some(1), 7));
}

#[test]
fn no_end_of_a_job_is_missed_on_a_large_cluster() {
    let site = Site::configured();
    let start = Instant::now();
    let mixed = fs::read_to_string(fixture("node-mixed-22.05.txt")).unwrap();
    let shows = |cpus: u32| {
        let text = mixed.replace("CPUAlloc=1", &format!("CPUAlloc={cpus}"));
        fs::write(site.path("node.txt"), text).unwrap();
    };
    shows(1);
    site.prints("scontrol", &site.path("node.txt"));
    site.large(UNIX, 300);
    let queue = site.read("queue.txt");
    let runs = |lines: &str| {
        let text = queue.replace("7|RUNNING|NONE|vm||(null)\n", lines);
        fs::write(site.path("queue.txt"), text).unwrap();
    };
    let (mut node, mut jobs) = site.both();
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        assert!(matches!(node.read(now), Answer::Said(_)));
        let said = said(jobs.read(now, UNIX + seconds));
        let ended = said.ended.unwrap();
        assert_eq!((ended.failed, ended.withdrawn, ended.unknown), (0, 0, 0));
        (said.active, ended.completed, site.count("listed"))
    };
    assert_eq!(at(0), (vec![7], 0, 1));
    // One that makes room for another of the same size leaves the record as it was: it is found with the next list.
    let seven = format!("7|COMPLETED|{}|vm||(null)\n", UNIX + 50);
    runs(&format!("{seven}8000|RUNNING|NONE|vm||(null)\n"));
    assert_eq!(at(60), (vec![7], 0, 1));
    assert_eq!(at(120), (vec![8000], 1, 2));
    // The record tells of one after which the node is free.
    shows(0);
    runs(&format!("{seven}8000|COMPLETED|{}|vm||(null)\n", UNIX + 170));
    assert_eq!(at(180), (vec![], 2, 3));
    assert_eq!(at(240), (vec![], 2, 3));
}

#[test]
fn the_jobs_of_a_small_cluster_are_listed_each_time() {
    let site = Site::configured();
    site.counts("echo '7|RUNNING|NONE|vm||(null)'");
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    for n in 0..3 {
        let now = start + Duration::from_secs(n * 60);
        assert!(matches!(node.read(now), Answer::Said(_)));
        assert!(matches!(jobs.read(now, UNIX + n * 60), Answer::Said(_)));
        assert_eq!(site.count("listed"), usize::try_from(n).unwrap() + 1);
    }
}

#[test]
fn the_node_is_asked_for_once_a_minute_however_long_the_controller_was_away_and_then_its_jobs_too() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.does(
        "scontrol",
        &format!("echo x >> {}; exit 1", site.path("asked").display()),
    );
    site.counts("exit 1");
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        let said = matches!(node.read(now), Answer::Said(_));
        let lists = seconds.is_multiple_of(60);
        let listed = lists.then(|| matches!(jobs.read(now, UNIX + seconds), Answer::Said(_)));
        (said, listed)
    };
    // Each half a minute for the record, each minute for jobs, as the agent does.
    for n in 0..40 {
        assert!(!at(n * 30).0);
    }
    assert!(site.count("asked") >= 20, "{}", site.count("asked"));
    assert!(site.count("listed") < 10, "{}", site.count("listed"));
    site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
    site.prints("squeue", &fixture("queue-22.05.txt"));
    assert!(at(1_200).0 || at(1_230).0);
    assert_eq!(at(1_260), (true, Some(true)));
}

#[test]
fn lists_that_fail_by_themselves_are_asked_for_less_often_all_the_same() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.counts("exit 1");
    for n in 0..20 {
        let now = start + Duration::from_secs(n * 60);
        assert!(matches!(node.read(now), Answer::Said(_)));
        assert_eq!(jobs.read(now, UNIX + n * 60), Answer::Silent);
    }
    assert!(site.count("listed") < 10, "{}", site.count("listed"));
}

#[test]
fn an_empty_list_says_nothing_where_jobs_are_hidden_until_one_has_been_shown() {
    let site = Site::configured();
    let now = Instant::now();
    let unix = UNIX;
    let asked = site.path("asked");
    let configured = |private: &str| {
        let script = format!(
            "[ \"$1\" = show ] || exit 1; echo x >> {}; echo 'Configuration data as of 2026'; echo 'PrivateData             = {private}'",
            asked.display()
        );
        site.does("scontrol", &script);
    };
    let known = |probe: &mut JobsProbe| {
        let jobs = said(probe.read(now, unix));
        assert!(jobs.active.is_empty());
        assert_eq!(jobs.pending.is_some(), jobs.ended.is_some());
        jobs.pending.is_some()
    };
    site.does("squeue", "exit 0");
    // Nobody says whether they are hidden.
    site.does("scontrol", "exit 1");
    let mut probe = site.jobs();
    assert!(!known(&mut probe));
    configured("jobs,usage");
    assert!(!known(&mut probe) && !known(&mut probe));
    assert_eq!(site.count("asked"), 1);
    assert_eq!(remembered(site.dir.path(), unix), None, "nor that nothing runs");
    // A restart says no more.
    assert!(!known(&mut site.jobs()));
    // An operator sees others' jobs, wherever they run, and knows from then on what an empty list says.
    site.does("squeue", "echo '9|RUNNING|NONE|other||(null)'");
    assert!(known(&mut probe));
    site.does("squeue", "exit 0");
    assert!(known(&mut probe) && known(&mut site.jobs()));
    // Not for longer than until one runs here that is not shown.
    site.runs(50, "slurmstepd", "slurmstepd: [4711.batch]");
    assert_eq!(said(site.jobs().read(now, unix)).pending, None);
    site.ends(50);
    assert!(!known(&mut site.jobs()));
    configured("(null)");
    assert!(known(&mut site.jobs()), "nothing is hidden");
}

#[test]
fn a_controller_whose_silences_are_short_is_not_asked_for_more_lists() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.counts("exit 1");
    for n in 0..40 {
        // Overloaded: every other question is answered.
        if n % 2 == 0 {
            site.does("scontrol", "exit 1");
        } else {
            site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
        }
        let now = start + Duration::from_secs(n * 60);
        assert_eq!(matches!(node.read(now), Answer::Said(_)), n % 2 == 1);
        assert_eq!(jobs.read(now, UNIX + n * 60), Answer::Silent);
    }
    assert!(site.count("listed") < 15, "{}", site.count("listed"));
}

#[test]
fn where_jobs_are_hidden_and_the_controller_is_silent_what_has_ended_is_not_known() {
    let site = Site::configured();
    let now = Instant::now();
    site.does(
        "scontrol",
        "[ \"$1\" = show ] || exit 1; echo 'PrivateData             = jobs'",
    );
    site.runs(50, "slurmstepd", "slurmstepd: [4711.batch]");
    let ended = |script: &str| {
        site.does("squeue", script);
        let jobs = said(site.jobs().read(now, UNIX));
        jobs.ended.map(|e| (e.completed, e.failed))
    };
    assert_eq!((ended("exit 0"), ended("exit 1")), (None, None));
    // One that has shown jobs is silent: what it has told stays known.
    let shows = format!("echo '4711|RUNNING|NONE|vm||(null)'; echo '9|COMPLETED|{UNIX}|vm||(null)'");
    assert_eq!((ended(&shows), ended("exit 1")), (Some((1, 0)), Some((1, 0))));
}
