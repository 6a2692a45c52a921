//! What the agent's probes see of a real Slurm.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use hpc_schema::heartbeat::SlurmState;
use hpc_tests::slurm::{PATIENCE, Slurm};
use hpc_tests::wait;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::services::ServicesProbe;
use virtengine_node_agent::probe::slurm::{Answer, JobsProbe, NodeProbe, SlurmConfig, SlurmJobs};

/// By a fresh probe each time; what ended is kept beside.
fn jobs(slurm: &Slurm) -> Result<SlurmJobs> {
    let mut probe = JobsProbe::new(slurm.config(), &Roots::default(), slurm.path("jobs.json"));
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    match probe.read(Instant::now(), unix) {
        Answer::Said(jobs) => Ok(jobs),
        other => bail!("no jobs: {other:?}"),
    }
}

fn wait_jobs(slurm: &Slurm, what: &str, is: impl Fn(&SlurmJobs) -> bool) -> Result<()> {
    wait::until(what, PATIENCE, || jobs(slurm).map(|j| is(&j).then_some(())))
}

#[test]
fn jobs_are_followed_from_submission_to_their_end_and_a_drain_is_seen() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let slurm = Slurm::start(dir.path())?;
    let node = slurm.wait_node("the node", |_| true)?;
    assert_eq!(
        (
            node.cpus,
            node.cpus_allocated,
            node.memory_mib,
            node.memory_allocated_mib
        ),
        (2, 0, 2000, 0)
    );
    let none = wait::until("no jobs", PATIENCE, || jobs(&slurm).map(Some))?;
    let ended = none.ended.map(|e| (e.completed, e.failed));
    assert_eq!(
        (none.active.len(), none.pending, ended),
        (0, Some(0), Some((0, 0)))
    );

    // One runs, one waits for this very node, one waits for any.
    let runs = slurm.submit("sleep 600", &[])?;
    wait_jobs(&slurm, "running job", |j| j.active == [runs])?;
    let node = slurm.wait_node("the node with its job", |n| n.state == SlurmState::Mixed)?;
    assert_eq!(
        (node.state, node.cpus_allocated, node.memory_allocated_mib),
        (SlurmState::Mixed, 1, 100)
    );
    let waits = slurm.submit("true", &["-n2", "--exclusive", "-w", &slurm.node])?;
    slurm.submit("true", &["-n2", "--exclusive", "--begin=now+1hour"])?;
    wait_jobs(&slurm, "waiting job", |j| j.pending == Some(1))?;

    // It fails, one succeeds, one is cancelled: each counts as what it is, once.
    slurm.cancel(waits)?;
    let fails = slurm.submit("exit 3", &[])?;
    let succeeds = slurm.submit("true", &[])?;
    wait_jobs(&slurm, "ends", |j| {
        j.active == [runs] && j.ended.is_some_and(|e| (e.completed, e.failed) == (1, 1))
    })?;
    assert!(fails < succeeds);

    // Drained by the site's administrator while the job runs.
    slurm.update(&["state=drain", "reason=new disk"])?;
    let node = slurm.wait_node("drain", |n| n.state == SlurmState::Drain)?;
    assert!(node.reason.is_some_and(|r| r.starts_with("new disk")));
    let active = wait::until("jobs", PATIENCE, || jobs(&slurm).map(|j| Some(j.active)))?;
    assert_eq!((node.cpus_allocated, active), (1, vec![runs]));
    slurm.cancel(runs)?;
    slurm.wait_node("empty node", |n| {
        n.state == SlurmState::Drain && n.cpus_allocated == 0
    })?;
    wait_jobs(&slurm, "no job", |j| j.active.is_empty())?;
    let ended = wait::until("ended jobs", PATIENCE, || jobs(&slurm).map(|j| j.ended))?;
    assert_eq!(
        (ended.completed, ended.failed, ended.withdrawn, ended.unknown),
        (1, 1, 1, 0)
    );
    slurm.update(&["state=resume"])?;
    slurm.wait_node("idle node", |n| n.state == SlurmState::Idle)?;
    Ok(())
}

#[test]
fn a_dead_controller_leaves_running_jobs_known_and_services_are_seen() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut slurm = Slurm::start(dir.path())?;
    let found = ServicesProbe::new(&Roots::default(), &SlurmConfig::default()).read(Instant::now());
    let services = found.services;
    assert_eq!(
        (services.slurmd_running, services.munge_running),
        (Some(true), Some(true))
    );
    let version = services.slurmd_version.map(|v| v.to_string()).unwrap_or_default();
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    let munge = found.munge_version.unwrap_or_default();
    assert!(munge.starts_with(|c: char| c.is_ascii_digit()), "{munge}");

    let began = dir.path().join("began");
    let runs = slurm.submit(&format!("touch {}; sleep 600", began.display()), &[])?;
    wait_jobs(&slurm, "running job", |j| j.active == [runs])?;
    // The controller says that a job runs before it has told the node so: dead by then, it never does.
    wait::until("the job's process", PATIENCE, || Ok(began.exists().then_some(())))?;
    slurm.kill_controller()?;
    let start = Instant::now();
    assert_eq!(
        NodeProbe::new(slurm.config(), &Roots::default()).read(Instant::now()),
        Answer::Silent
    );
    ensure!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let jobs = wait::until("the job by its process", PATIENCE, || {
        let start = Instant::now();
        let found = jobs(&slurm);
        ensure!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        found.map(|j| j.active.contains(&runs).then_some(j))
    })?;
    assert_eq!(jobs.pending, None);
    Ok(())
}
