//! SIGKILL of the real process at every named step between admission and settlement, of reports and of registrations.
//! Built with `--features fault-injection`.

use std::collections::BTreeSet;
use std::time::Duration;

use hpc_schema::gateway::REGISTER_PATH;
use serde_json::Value;
use virtengine_provider::fault;

use crate::agent::{Agent, client};
use crate::process::{Process, beat};
use crate::site::{Site, eventually};

/// Kills at one step, restarts, and looks whether everything accepted has come to its end.
async fn dies_at(step: &str) {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let client = agent.client(&site);
    let mut process = Process::start(&site, Some(step));
    let (mut sequence, mut accepted) = (0, BTreeSet::new());
    eventually(&format!("death at {step}"), async || {
        sequence += 1;
        if beat(&agent, &client, process.port, sequence).await {
            accepted.insert(sequence);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        process.is_dead()
    })
    .await;
    drop(process);

    let mut process = Process::start(&site, None);
    let newest = accepted.last().copied().unwrap_or(0);
    site.wait_sequence(&agent.node, newest).await;
    // It goes on: the sequence of the key is not stuck.
    sequence += 1;
    eventually("a heartbeat after the restart", async || {
        sequence += 1;
        beat(&agent, &client, process.port, sequence).await
    })
    .await;
    site.wait_sequence(&agent.node, sequence).await;
    let last = sequence;
    let mut shown = Value::Null;
    eventually("every end on record", async || {
        shown = serde_json::from_str(&site.run(&["node", "show", &agent.node, "-o", "json"]).0).unwrap();
        let status: Value = serde_json::from_str(&site.run(&["status", "-o", "json"]).0).unwrap();
        shown["reports"][0]["sequence"] == last
            && status["open_transactions"] == 0
            && status["reports_waiting"] == 0
            && status["reports_in_transactions"] == 0
    })
    .await;
    assert!(!process.is_dead());

    // Every accepted sequence lies within the range of a recorded end.
    let ends = shown["reports"].as_array().unwrap();
    let covered = |s: u32| {
        ends.iter().any(|e| {
            let of = e["sequence"].as_u64().unwrap();
            let from = e["superseded_from"].as_u64().unwrap_or(of);
            (from..=of).contains(&u64::from(s))
        })
    };
    for s in &accepted {
        assert!(covered(*s), "{step}: {s} was accepted and has no end: {shown}");
    }
    assert!(ends.iter().all(|e| e["ended"] == "on_chain"), "{step}: {shown}");
    // One effect a record, and none that is not on record.
    let (reports, batches) = site.accepted_on_chain().await;
    assert_eq!(reports, u64::try_from(ends.len()).unwrap(), "{step}: {shown}");
    assert_eq!(reports, batches);
}

macro_rules! steps {
    ($($name:ident = $step:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                dies_at($step).await;
            }
        )*

        #[test]
        fn every_step_has_its_kill() {
            assert_eq!([$($step),*].as_slice(), fault::STEPS);
        }
    };
}

steps! {
    killed_after_verification_nothing_accepted_is_lost = "admit.verified";
    killed_before_the_spools_commit_nothing_accepted_is_lost = "spool.written";
    killed_before_the_database_has_what_was_accepted_nothing_is_lost = "spool.applying";
    killed_once_the_database_has_it_nothing_accepted_is_lost = "spool.applied";
    killed_after_the_spools_commit_nothing_accepted_is_lost = "spool.committed";
    killed_after_submission_everything_ends_once = "settle.submitted";
    killed_while_planning_everything_ends_once = "settle.planned";
    killed_after_signing_everything_ends_once = "settle.signed";
    killed_before_the_signed_is_stored_everything_ends_once = "settle.persisting";
    killed_after_the_signed_is_stored_everything_ends_once = "settle.persisted";
    killed_before_the_broadcast_everything_ends_once = "settle.broadcasting";
    killed_after_the_broadcast_everything_ends_once = "settle.broadcast";
    killed_when_the_transaction_is_found_everything_ends_once = "settle.found";
    killed_at_its_end_everything_ends_once = "settle.ended";
    killed_after_reading_outcomes_everything_ends_once = "settle.outcomes";
    killed_before_outcomes_are_stored_everything_ends_once = "settle.settling";
    killed_after_outcomes_are_stored_everything_ends_once = "settle.settled";
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_of_settlement_a_registration_takes_effect_once() {
    let mut site = Site::start().await;
    site.stop_daemon().await;
    let steps = fault::STEPS.iter().copied();
    let steps = steps.filter(|step| step.starts_with("settle."));
    for (number, step) in (1u64..).zip(steps) {
        let mut agent = Agent::new(&format!("node-{number:04}"));
        let token = site.token(&agent.node, &agent.public(), "1h");
        let body = agent.register_body(&token, &agent.csr);
        let open = client(&site.ca(), None);
        let mut process = Process::start(&site, Some(step));
        let url = format!("https://localhost:{}{REGISTER_PATH}", process.port);
        eventually(&format!("death at {step}"), async || {
            // Until it is on chain the agent asks again, whatever it is told.
            drop(open.post(&url).json(&body).send().await);
            process.is_dead()
        })
        .await;
        drop(process);

        let process = Process::start(&site, None);
        site.elsewhere = Some(process.port);
        eventually("the chain was read", async || {
            let said = process.ready().await;
            !said.contains("\"starting\"") && !said.contains("\"not_synced\"")
        })
        .await;
        agent.register(&site, &token).await;
        // Each registration begins the contract's next epoch: a second one of any node would have taken one more.
        let epoch = agent.registered.as_ref().unwrap().epoch;
        assert_eq!(epoch, number, "{step}");
        assert_eq!(site.node(&agent.node).await.epoch, epoch, "{step}");
        // It goes on: the sequence of the key is not stuck.
        let (own, mut sequence) = (agent.client(&site), 0);
        eventually("a heartbeat of the new node", async || {
            sequence += 1;
            beat(&agent, &own, process.port, sequence).await
        })
        .await;
        site.wait_sequence(&agent.node, sequence).await;
        eventually("no transaction to be open", async || {
            let status: Value = serde_json::from_str(&site.run(&["status", "-o", "json"]).0).unwrap();
            status["open_transactions"] == 0
        })
        .await;
    }
}
