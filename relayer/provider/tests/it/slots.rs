//! Slots by the command line, where the node does not say how a task of theirs ended.

use serde_json::{Value, json};
use virtengine_provider::{clock, db, slot, task};

use crate::agent::Agent;
use crate::site::{Site, cluster};

const SLOT: [&str; 2] = ["node-0001", "slot-0"];

fn done(site: &Site, verb: &str) -> Value {
    let (out, err, code) = site.run(&[&["slot", verb], &SLOT[..], &["-o", "json"]].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// The node has the task that waits and never says how it ended.
async fn never_heard_of_again(site: &Site) {
    let store = site.store().await;
    let (cluster, node) = (cluster(), SLOT[0].parse().unwrap());
    let mut tx = store.begin().await.unwrap();
    let asked = task::ask_claim((&cluster, &node), 4, 1, clock::now_ms()).into();
    let [tasks, cancelled] = db::each(tx.together(asked).await.unwrap()).unwrap();
    assert_eq!(task::told_claim(&tasks, &cancelled).unwrap().tasks.len(), 1);
    let late = clock::now_ms() + 40 * 24 * 3600 * 1000;
    assert_eq!(task::keep(&mut tx, late).await.unwrap().unknown, 1);
    slot::sweep(&mut tx, late).await.unwrap();
    tx.commit().await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantined_slot_is_approved_anew_and_retired_without_the_nodes_word() {
    let mut site = Site::start().await;
    let _agent = Agent::enrolled(&site, SLOT[0]).await;
    site.stop_daemon().await;
    let spec = json!({
        "slot_id": SLOT[1], "slot_index": 0, "nvme_device": "/dev/disk/by-id/nvme-0", "vcpu_count": 1,
        "memory_mib": 192, "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16",
    });
    let (_, err, code) = site.run(&["slot", "add", SLOT[0], "--slot", &spec.to_string()]);
    assert_eq!(code, 0, "{err}");
    let first = done(&site, "approve");
    let (_, refused, code) = site.run(&["slot", "retire", SLOT[0], SLOT[1]]);
    assert!(code != 0 && refused.contains("works on slot-0"), "{refused}");
    never_heard_of_again(&site).await;
    let second = done(&site, "approve");
    assert_eq!(second["slot"]["state"], "approved");
    assert_eq!(second["slot"]["task_id"], second["task_id"]);
    assert_ne!(second["task_id"], first["task_id"]);
    never_heard_of_again(&site).await;
    let retired = done(&site, "retire");
    assert_eq!(
        (&retired["state"], &retired["task_id"]),
        (&json!("retired"), &Value::Null)
    );
}
