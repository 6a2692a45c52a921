//! Rounds, of a chain that answers what a test says.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hpc_schema::registry::Params;
use serde_json::{Value, json};

use super::*;
use crate::fake_chain::{self, Answer, UNKNOWN, chain};
use crate::registry::scene::view;

/// At which the nodes of a scene were read.
const READ: u64 = 5;

fn named(id: &str) -> ClusterId {
    id.parse().unwrap()
}

/// A gateway that knows a node of each of these clusters.
struct Scene {
    _dir: tempfile::TempDir,
    db: Store,
    registry: Registry,
    client: RegistryClient,
    height: Arc<AtomicU64>,
    /// The clusters that were asked about, in order.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    async fn new(known: &[&str], answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Store::open(&dir.path().join("p.db")).await.unwrap();
        let registry = Registry::new("c", "k");
        for cluster in known {
            let read = Read {
                cluster: &named(cluster),
                asked: &[view().node_id],
                nodes: vec![view()],
                height: READ,
            };
            take_in(&db, &registry, read, 0).await.unwrap();
        }
        let (height, asked) = (Arc::new(AtomicU64::new(READ)), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        let fake = chain(Arc::clone(&height), move |question: &Value| {
            if question.get("params").is_some() {
                return Answer::Json(serde_json::to_value(Params::default()).unwrap());
            }
            if question.get("nodes").is_some() {
                return Answer::Json(json!({ "nodes": [], "block": fake_chain::block() }));
            }
            if question.get("relay").is_some() {
                return Answer::Json(json!({ "nodes": [view()], "block": fake_chain::block() }));
            }
            let cluster = question["cluster"]["cluster_id"].as_str().unwrap();
            seen.lock().unwrap().push(cluster.to_owned());
            answer(cluster)
        });
        let client = RegistryClient::new(fake.await, "wasm1contract");
        Self {
            _dir: dir,
            db,
            registry,
            client,
            height,
            asked,
        }
    }

    async fn round(&self) -> Result<(), SyncError> {
        let (client, db, registry) = (&self.client, &self.db, &self.registry);
        sync(client, db, registry, &[], &mut Turns::default(), false, 0).await
    }

    /// The clusters whose node is known, in memory and on disk.
    async fn known(&self) -> Vec<String> {
        let stored = store::known(self.db.reader()).await.unwrap();
        let stored: Vec<_> = stored.into_iter().map(|n| n.cluster_id.to_string()).collect();
        let mut nodes = self.registry.nodes();
        nodes.sort_by(|a, b| a.cluster_id.cmp(&b.cluster_id));
        assert!(
            nodes
                .iter()
                .map(|n| n.cluster_id.to_string())
                .eq(stored.iter().cloned())
        );
        stored
    }
}

#[tokio::test]
async fn nodes_of_a_cluster_that_the_chain_has_no_more_are_forgotten_and_no_endpoint_that_lags_decides_it() {
    let scene = Scene::new(&["hpc-cluster-1", "hpc-cluster-2"], |cluster| match cluster {
        "hpc-cluster-1" => UNKNOWN,
        other => fake_chain::cluster(other),
    })
    .await;
    scene.height.store(READ - 1, Ordering::Relaxed);
    scene.round().await.unwrap();
    assert_eq!(scene.known().await, ["hpc-cluster-1", "hpc-cluster-2"]);
    scene.height.store(READ, Ordering::Relaxed);
    scene.round().await.unwrap();
    assert_eq!(scene.known().await, ["hpc-cluster-2"]);
    scene.asked.lock().unwrap().clear();
    scene.round().await.unwrap();
    assert_eq!(
        *scene.asked.lock().unwrap(),
        ["hpc-cluster-2"],
        "nobody asks any more"
    );
}

#[tokio::test]
async fn nodes_of_a_cluster_that_one_endpoint_does_not_know_and_another_does_stay() {
    let before = AtomicU64::new(0);
    let scene = Scene::new(&["hpc-cluster-1"], move |cluster| {
        match before.fetch_add(1, Ordering::Relaxed) {
            0 => UNKNOWN,
            _ => fake_chain::cluster(cluster),
        }
    })
    .await;
    scene.round().await.unwrap();
    assert_eq!(scene.asked.lock().unwrap().len(), 2);
    assert_eq!(scene.known().await, ["hpc-cluster-1"]);
}

#[tokio::test]
async fn nodes_that_another_gateway_has_taken_from_the_store_leave_memory_too() {
    let scene = Scene::new(&["hpc-cluster-1"], |_| UNKNOWN).await;
    let mut tx = scene.db.begin().await.unwrap();
    let node = view().node_id;
    store::delete_node(&mut tx, &named("hpc-cluster-1"), &node)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    scene.round().await.unwrap();
    assert!(scene.known().await.is_empty());
}

#[tokio::test]
async fn a_cluster_that_cannot_be_read_keeps_no_other_from_being_read_and_the_first_error_is_told() {
    let known = ["hpc-cluster-1", "hpc-cluster-2", "hpc-cluster-3"];
    let scene = Scene::new(&known, |cluster| match cluster {
        "hpc-cluster-1" => Answer::Fails("invalid_field: first: query wasm contract failed"),
        "hpc-cluster-3" => Answer::Fails("invalid_field: third: query wasm contract failed"),
        other => fake_chain::cluster(other),
    })
    .await;
    let told = scene.round().await.unwrap_err();
    assert!(told.is_of_one() && told.to_string().contains("first"), "{told}");
    assert_eq!(*scene.asked.lock().unwrap(), known);
    assert!(scene.registry.cluster(&named("hpc-cluster-2")).is_some());
    assert_eq!(scene.known().await, known);
}

#[tokio::test]
async fn a_chain_that_does_not_answer_is_not_asked_once_for_each_cluster() {
    let scene = Scene::new(&["hpc-cluster-1", "hpc-cluster-2"], |_| Answer::Breaks).await;
    let told = scene.round().await.unwrap_err();
    assert!(!told.is_of_one(), "{told}");
    assert_eq!(*scene.asked.lock().unwrap(), ["hpc-cluster-1"]);
}

#[tokio::test]
async fn a_cluster_counts_as_unread_until_it_is_looked_for_and_one_that_cannot_be_read_goes_on_so() {
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let still = Arc::clone(&fails);
    let scene = Scene::new(
        &["hpc-cluster-1", "hpc-cluster-2"],
        move |cluster| match cluster {
            "hpc-cluster-1" if still.load(Ordering::Relaxed) => {
                Answer::Fails("invalid_field: it is so: query wasm contract failed")
            }
            other => fake_chain::cluster(other),
        },
    )
    .await;
    let registry = &scene.registry;
    let unread =
        || ["hpc-cluster-1", "hpc-cluster-2", "hpc-cluster-9"].map(|c| registry.is_unread(&named(c)));
    assert!(registry.has_unread() && unread() == [true; 3]);
    let mut turns = Turns::default();
    let round = async |turns: &mut Turns, discover| {
        sync(&scene.client, &scene.db, registry, &[], turns, discover, 0).await
    };
    assert!(round(&mut turns, false).await.is_err());
    // Of one that nobody serves the gateway will never know more.
    assert_eq!(unread(), [true, false, false]);
    fails.store(false, Ordering::Relaxed);
    round(&mut turns, false).await.unwrap();
    assert!(registry.has_unread(), "nobody has asked which nodes it has");
    round(&mut turns, true).await.unwrap();
    assert!(!registry.has_unread() && unread() == [false; 3]);
    // What has been read once is known, whatever happens later.
    fails.store(true, Ordering::Relaxed);
    assert!(round(&mut turns, true).await.is_err());
    assert!(!registry.has_unread() && unread() == [false; 3]);
}
