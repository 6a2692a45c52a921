use futures_util::FutureExt as _;
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;
use hpc_schema::registry::{Cluster, JobIds};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::spool::Accept;
use crate::vectors::Vectors;

/// A gateway that has read the node of the vectors from the chain, and a sound heartbeat of it.
struct Scene {
    _dir: tempfile::TempDir,
    store: Store,
    registry: Arc<Registry>,
    spool: Spool,
    writer: JoinHandle<()>,
    verifiers: Verifiers,
    judge: Judge,
    peer: PeerIdentity,
    request: HeartbeatRequest,
    now_ms: u64,
}

impl Scene {
    async fn new() -> Self {
        Self::of(|case| case["result"] == "accepted").await
    }

    /// The same with the first heartbeat of the vectors that is such a one.
    async fn of(wanted: impl Fn(&serde_json::Value) -> bool) -> Self {
        let vectors = Vectors::read();
        let mut cases = vectors.readable();
        let (case, request, _) = cases.find(|(case, ..)| wanted(case)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let registry = Arc::new(vectors.registry());
        let (spool, writer) = Spool::start(store.clone(), None, Arc::default());
        let verifiers = Verifiers::on(1).unwrap();
        let judge = Judge::new(
            Arc::clone(&registry),
            Arc::default(),
            spool.clone(),
            verifiers.clone(),
        );
        Self {
            _dir: dir,
            store,
            registry,
            spool,
            writer,
            verifiers,
            judge,
            peer: vectors.peer(),
            request,
            now_ms: case["now"].as_u64().unwrap() * 1000,
        }
    }

    /// What becomes of the heartbeat, the very same each time.
    async fn comes(&self) -> Verdict {
        let (peer, request) = (&self.peer, &self.request);
        let seen = self.registry.seen(&peer.cluster_id, &peer.node_id);
        self.judge
            .judge(peer, peer.node_id.as_str(), request, seen, self.now_ms, || {
                Some(request.clone())
            })
            .await
    }

    /// It is accepted, and counts as repeated from then on.
    async fn counts_once(&self) {
        let first = self.comes().await;
        assert!(matches!(first, Verdict::Accepted { .. }), "{first:?}");
        assert_eq!(refusal(self.comes().await).code, Code::NonceReused);
    }

    /// The owner sets what may appear of job ids.
    fn sets(&self, job_ids: JobIds) {
        let cluster = self.registry.cluster(&self.peer.cluster_id).unwrap();
        self.registry.set_cluster(Cluster {
            job_ids,
            ..Cluster::clone(&cluster)
        });
    }

    /// Asks for another node's report to be stored.
    fn put(&self) -> oneshot::Receiver<Result<crate::spool::Accepted, StoreError>> {
        let of = (self.peer.cluster_id.clone(), "node-0001".parse().unwrap());
        let (reply, told) = oneshot::channel();
        self.spool
            .put(Box::new(Accept::new(of, (1, 1), ([1; 70], [2; 64]), 1)), reply);
        told
    }
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused { refusal, .. } => refusal,
        other => panic!("{other:?}"),
    }
}

fn is_busy(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Unavailable(StoreError::Busy))
}

#[tokio::test]
async fn a_heartbeat_that_finds_no_place_to_be_verified_may_come_again_as_it_is() {
    let scene = Scene::new().await;
    // There is one thread, and nobody works them off before this test waits.
    let mut waiting = Vec::new();
    loop {
        let mut asked = Box::pin(scene.verifiers.verify(Vec::new()));
        match asked.as_mut().now_or_never() {
            None => waiting.push(asked),
            Some(none) => {
                assert_eq!(none, None);
                break;
            }
        }
    }
    for again in 0..3 {
        let verdict = scene.comes().now_or_never();
        assert!(verdict.as_ref().is_some_and(is_busy), "{again}: {verdict:?}");
    }
    for asked in waiting {
        assert_eq!(asked.await, Some(true));
    }
    scene.counts_once().await;
}

#[tokio::test]
async fn a_heartbeat_that_finds_no_place_to_be_stored_may_come_again_as_it_is() {
    let scene = Scene::new().await;
    let held = scene.store.begin().await.unwrap();
    drop(scene.put());
    // Enough turns for the writer to take that one and come to wait for the database.
    for _ in 0..16 {
        yield_now().await;
    }
    let full = loop {
        if let Ok(told) = scene.put().try_recv() {
            break told;
        }
    };
    assert!(matches!(full, Err(StoreError::Busy)), "{full:?}");
    for again in 0..3 {
        let verdict = scene.comes().await;
        assert!(is_busy(&verdict), "{again}: {verdict:?}");
    }
    held.rollback().await.unwrap();
    while scene.spool.load_permille() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scene.counts_once().await;
}

#[tokio::test]
async fn a_heartbeat_that_nobody_stores_or_waits_for_may_come_again_as_it_is() {
    let scene = Scene::new().await;
    // Whoever sent it went away before its signatures were verified.
    assert!(scene.comes().now_or_never().is_none());
    // Or before anybody had looked what becomes of it.
    let (peer, request) = (&scene.peer, &scene.request);
    let seen = scene.registry.seen(&peer.cluster_id, &peer.node_id);
    let judged = scene
        .judge
        .judge(peer, peer.node_id.as_str(), request, seen, scene.now_ms, || None);
    drop(judged);
    scene.counts_once().await;

    let Scene {
        writer,
        judge,
        peer,
        registry,
        ..
    } = Scene::new().await;
    writer.abort();
    assert!(writer.await.is_err());
    for again in 0..3 {
        let seen = registry.seen(&peer.cluster_id, &peer.node_id);
        let verdict = judge
            .judge(
                &peer,
                peer.node_id.as_str(),
                &scene.request,
                seen,
                scene.now_ms,
                || None,
            )
            .await;
        let stopped = matches!(verdict, Verdict::Unavailable(StoreError::Stopped));
        assert!(stopped, "{again}: {verdict:?}");
    }
}

#[tokio::test]
async fn a_number_that_is_not_above_is_answered_with_the_highest_on_record_of_any_gateway() {
    let mut scene = Scene::new().await;
    let Verdict::Accepted { epoch, sequence, .. } = scene.comes().await else {
        panic!("it is sound");
    };
    let (cluster, node) = (&scene.peer.cluster_id, &scene.peer.node_id);
    scene.registry.accepted(
        cluster,
        node,
        epoch,
        sequence,
        scene.now_ms,
        [127, 0, 0, 1].into(),
    );
    // What another gateway accepts goes by the store alone.
    let report = Accept::new(
        (cluster.clone(), node.clone()),
        (epoch, sequence + 50),
        ([1; 70], [2; 64]),
        scene.now_ms,
    );
    assert!(scene.spool.accept(report).await.unwrap().accepted);
    let told = refusal(scene.comes().await);
    let above = |number: u32| format!("above {number},");
    assert_eq!(told.code, Code::StaleSequence);
    assert_eq!(told.field.as_deref(), Some("sequence_number"));
    assert!(told.message.contains(&above(sequence)), "{told}");
    // With others about the store is asked.
    scene.judge.shared = Some(scene.store.clone());
    let told = refusal(scene.comes().await);
    assert_eq!(told.code, Code::StaleSequence);
    assert!(told.message.contains(&above(sequence + 50)), "{told}");
}

#[tokio::test]
async fn a_section_by_the_setting_before_one_that_shows_more_is_taken_and_none_that_shows_what_is_forbidden_now()
 {
    let hashed = |case: &serde_json::Value| case["name"] == "job ids hashed where plain is agreed";
    let scene = Scene::of(hashed).await;
    assert_eq!(refusal(scene.comes().await).code, Code::ReportMismatch);
    scene.sets(JobIds::Hashed);
    scene.sets(JobIds::Plain);
    scene.counts_once().await;

    // Its agent has signed with the ids as they are.
    let scene = Scene::new().await;
    scene.sets(JobIds::Hashed);
    assert_eq!(refusal(scene.comes().await).code, Code::ReportMismatch);
}
