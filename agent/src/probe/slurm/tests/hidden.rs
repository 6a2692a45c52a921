//! Jobs that Slurm does not show.

use super::*;

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
