//! Full heartbeats with what proves them on chain: kept while nodes may forget, for as long as agents are told.

use hpc_chain::proof::{Proof, ProofError, Trust, verify};
use serde_json::Value;
use virtengine_provider::{clock, db, prove};

use crate::agent::Agent;
use crate::site::{Site, eventually};

async fn proven(site: &Site, node: &str) -> Proof {
    let mut text = String::new();
    eventually("a proof", async || {
        let (out, _, code) = site.run(&["heartbeat", "prove", node]);
        text = out;
        code == 0
    })
    .await;
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_holds_and_what_is_put_together_from_two_does_not() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let other = Agent::enrolled(&site, "node-0002").await;
    for one in [&agent, &other] {
        assert!(one.beat(&one.client(&site), &site, 1).await.accepted);
    }
    let (first, second) = (proven(&site, &agent.node).await, proven(&site, &other.node).await);
    let trust = Trust {
        agent_key: Some(*agent.seed.public()),
        chain_id: Some(crate::site::CHAIN_ID.into()),
        contract: Some(site.contract.clone()),
        ..Trust::default()
    };
    let found = verify(&first, &trust).unwrap();
    assert_eq!((found.sequence, found.node_id.as_str()), (1, "node-0001"));
    assert!(matches!(
        verify(&second, &trust),
        Err(ProofError::NotTrusted { .. })
    ));

    // A later one, and parts of it in the place of the first's.
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 2).await.accepted);
    site.wait_sequence(&agent.node, 2).await;
    let mut later = proven(&site, &agent.node).await;
    eventually("the proof of the later one", async || {
        later = proven(&site, &agent.node).await;
        verify(&later, &trust).unwrap().sequence >= 2
    })
    .await;
    let first = &first;
    let with = |change: &dyn Fn(&mut Proof)| {
        let mut proof = first.clone();
        change(&mut proof);
        verify(&proof, &Trust::default()).unwrap_err().to_string()
    };
    for (said, why) in [
        (
            with(&|p| p.tx.clone_from(&later.tx)),
            "tx: carries no such report",
        ),
        (with(&|p| p.heartbeat.clone_from(&later.heartbeat)), "heartbeat: "),
        (with(&|p| p.auth = later.auth.clone()), "heartbeat: "),
        (with(&|p| p.agent = second.agent.clone()), "heartbeat: "),
        (
            with(&|p| p.signed_header = later.signed_header.clone()),
            "inclusion: does not lead",
        ),
        (with(&|p| p.inclusion.total += 1), "inclusion: "),
        (
            with(&|p| p.validators = Value::Array(vec![])),
            "validators: must be 1 to 10000",
        ),
        (
            with(&|p| p.validators[0]["voting_power"] = Value::from("7")),
            "validators: are not those that the header names",
        ),
        (
            with(&|p| p.signed_header["header"]["app_hash"] = Value::from("AB".repeat(32))),
            "signed_header.commit: is of another block than the header",
        ),
        (with(&|p| p.contract.push('x')), "heartbeat: "),
        (
            with(&|p| p.version = 2),
            "format: is \"virtengine-heartbeat-proof\", version 2",
        ),
    ] {
        assert!(said.starts_with(why), "{said}, not {why}");
    }
    // A commit that nobody signed.
    let mut unsigned = first.clone();
    unsigned.signed_header["commit"]["signatures"] = Value::Array(vec![]);
    let refused = verify(&unsigned, &Trust::default()).unwrap_err().to_string();
    assert!(refused.contains("is signed by 0 of 1 voting power"), "{refused}");

    // The older one stays beside it, until its time is over.
    let (out, _, code) = site.run(&["heartbeat", "prove", &agent.node, "--sequence", "1"]);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Proof>(&out).unwrap(), *first);
    site.stop_daemon().await;
    let store = site.store().await;
    let mut tx = store.begin().await.unwrap();
    prove::prune(&mut tx, clock::now_ms() + 1).await.unwrap();
    tx.commit().await.unwrap();
    for table in ["SELECT count(*) FROM heartbeat", "SELECT count(*) FROM evidence"] {
        let left = db::query(table).fetch_one(store.reader()).await.unwrap();
        let left: i64 = left.try_get(0).unwrap();
        assert_eq!(left, 0, "{table}");
    }
    store.close().await;
    let (_, err, code) = site.run(&["heartbeat", "prove", &agent.node]);
    assert!(code != 0 && err.contains("metrics_retention_hours"), "{err}");
}
