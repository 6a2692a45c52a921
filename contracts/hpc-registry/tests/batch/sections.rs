//! The second section: sent once, asked for when it is missing, shown as the cluster allows.

use hpc_schema::code::Code;
use hpc_schema::node::HealthStatus;
use hpc_schema::report::Report;
use serde_json::json;

use crate::common::actors::Signed;
use crate::common::*;
use crate::{beats, reporting, submit};

#[test]
fn a_first_report_without_its_section_asks_for_it() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    agent.attach = false;
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::SectionMissing)]);
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    // Unchanged it need not come again; changed it must come once.
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    agent.section.jobs = vec!["slurm-1".to_owned()];
    agent.section.jobs_total = 1;
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::SectionMissing)]);
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    assert_eq!(chain.node("node-0001").jobs.count, 1);
}

#[test]
fn a_late_report_over_an_unseen_section_is_stale_and_not_asked_for_it() {
    let (mut chain, mut agents) = reporting(1);
    let before = agents[0].clone();
    agents[0].section.gpu_type = "other".to_owned();
    let mut late = agents[0].report(chain.now(), HealthStatus::Healthy, 0);
    late.section = None;
    agents[0].section = before.section;
    agents[0].attach = true;
    assert_eq!(chain.beat(&mut agents[0]).accepted, 1);
    // Two sequences are below the one on record; with its section the second would be no better off.
    let answer = chain.submit(vec![(&agents[0], late)]);
    assert_eq!(outcomes(&answer, 1), [Err(Code::StaleSequence)]);
}

#[test]
fn a_section_that_cannot_be_read_refuses_its_item_alone() {
    let (mut chain, mut agents) = reporting(3);
    let now = chain.now();
    let mut reports = beats(&chain, &mut agents);
    for (at, section) in [(0, vec![1, 2, 3]), (1, vec![9])] {
        let report = Report {
            section_digest: hpc_schema::report::section_digest(&section),
            ..reports[at].1.report
        };
        reports[at].1 = Signed {
            signature: agents[at].sign(report),
            report,
            section: Some(section),
        };
    }
    let expected = [Err(Code::Malformed), Err(Code::UnsupportedVersion), Ok(())];
    assert_eq!(outcomes(&submit(&mut chain, &reports), 3), expected);
    assert_eq!(chain.node("node-0000").last_heartbeat.unwrap().0, now - 30);
}

#[test]
fn job_ids_are_shown_as_the_cluster_allows() {
    let (mut chain, mut agents) = reporting(1);
    agents[0].section.jobs = vec!["slurm-12345".to_owned()];
    agents[0].section.jobs_total = 2;
    agents[0].attach = true;
    let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
    chain.submit(vec![(&agents[0], report)]);
    let jobs = chain.node("node-0000").jobs;
    assert_eq!(
        (jobs.count, jobs.active_job_ids.len(), jobs.running),
        (2, 0, true)
    );
    chain
        .provider_sends(json!({"update_cluster": {"cluster_id": CLUSTER, "job_ids": "plain"}}))
        .unwrap();
    // Sent while none were allowed: a later setting does not bring it out.
    assert_eq!(chain.node("node-0000").jobs.active_job_ids, Vec::<String>::new());
    let stored = |chain: &Chain| {
        let sections = chain.deps.storage.map.iter().filter(|(k, _)| k[0] == 0x05);
        sections
            .map(|(_, v)| String::from_utf8_lossy(v).into_owned())
            .collect::<String>()
    };
    assert!(!stored(&chain).contains("slurm"));

    let set = |chain: &mut Chain, setting: &str| {
        let msg = json!({"update_cluster": {"cluster_id": CLUSTER, "job_ids": setting}});
        chain.provider_sends(msg).unwrap();
    };
    let mut send = |chain: &mut Chain, job: &str| {
        chain.advance(30);
        agents[0].section.jobs = vec![job.to_owned()];
        agents[0].attach = true;
        let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
        assert_eq!(chain.submit(vec![(&agents[0], report)]).accepted, 1);
        // The digest on record is that of what was signed: the next report needs no section.
        chain.advance(30);
        let report = agents[0].report(chain.now(), HealthStatus::Healthy, 2);
        assert_eq!(chain.submit(vec![(&agents[0], report)]).accepted, 1);
    };
    let shown = |chain: &Chain| chain.node("node-0000").jobs.active_job_ids;
    send(&mut chain, "slurm-2");
    assert_eq!(shown(&chain), ["slurm-2"]);
    let hashed = |id: &str| hpc_schema::report::hashed_job_id(&CLUSTER.parse().unwrap(), id);
    set(&mut chain, "hashed");
    assert_eq!(shown(&chain), [hashed("slurm-2")]);
    // The agent has not heard of it yet: its node is not stranded, and the id does not get on record.
    send(&mut chain, "slurm-3");
    assert_eq!(shown(&chain), [hashed("slurm-3")]);
    assert!(!stored(&chain).contains("slurm"));
    send(&mut chain, &hashed("slurm-4"));
    assert_eq!(shown(&chain), [hashed("slurm-4")]);
    set(&mut chain, "none");
    assert_eq!(shown(&chain), Vec::<String>::new());
}
