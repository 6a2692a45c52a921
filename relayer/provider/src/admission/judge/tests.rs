use futures_util::FutureExt as _;
use hpc_schema::code::Code;
use hpc_schema::heartbeat::HeartbeatRequest;
use hpc_schema::refusal::Refusal;
use hpc_schema::registry::{Cluster, JobIds};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};

use super::super::verifiers::{Case as _, Pending as _};
use super::case::Unverified;
use super::consider::Decides;
use super::*;
use crate::registry::Whose;
use crate::spool::{Accept, intakes};
use crate::store::StoreError;
use crate::vectors::Vectors;

/// Another node than theirs.
const OTHER: &str = "node-0001";

/// A gateway that has read the node of the vectors from the chain, and a sound heartbeat of it.
struct Scene {
    _dir: tempfile::TempDir,
    store: Store,
    registry: Arc<Registry>,
    spool: Spool,
    writer: JoinHandle<()>,
    judge: Judge,
    peer: Arc<PeerIdentity>,
    body: String,
    now_ms: u64,
}

impl Scene {
    async fn new() -> Self {
        Self::on(1).await
    }

    async fn on(cpus: usize) -> Self {
        Self::of(cpus, |case| case["result"] == "accepted").await
    }

    /// The same with the first heartbeat of the vectors that is such a one.
    async fn of(cpus: usize, wanted: impl Fn(&serde_json::Value) -> bool) -> Self {
        let vectors = Vectors::read();
        let mut cases = vectors.readable();
        let (case, ..) = cases.find(|(case, ..)| wanted(case)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let registry = Arc::new(vectors.registry());
        let (spool, writer) = Spool::start(store.clone(), None, Arc::default());
        let records = Records::new(Arc::clone(&registry), Arc::default(), spool.clone());
        let judge = Judge::by(records, Verifiers::on(cpus).unwrap());
        Self {
            _dir: dir,
            store,
            registry,
            spool,
            writer,
            judge,
            peer: Arc::new(vectors.peer()),
            body: case["body"].as_str().unwrap().into(),
            now_ms: case["now"].as_u64().unwrap() * 1000,
        }
    }

    /// What becomes of the heartbeat, the very same each time.
    async fn comes(&self) -> Verdict {
        self.judged().ruling().await.verdict
    }

    fn judged(&self) -> Judged<'_> {
        self.judges(Bytes::from(self.body.clone()))
    }

    /// The same as it waits to be read, and who waits for it.
    fn unread(&self) -> (Unread, Judged<'_>) {
        let (nonces, body) = (OnceLock::new(), Bytes::from(self.body.clone()));
        self.judge
            .unread(&self.peer, &nonces, body, self.seen(), self.now_ms)
    }

    /// The same, read, and free of any fault.
    fn read(&self) -> (Unverified, Judged<'_>) {
        let (unread, judged) = self.unread();
        let (signatures, read) = unread.read().unwrap();
        assert!(signatures.len() == 2 && read.is_ready());
        (read, judged)
    }

    /// The heartbeat with another nonce, over which it is not signed.
    fn unsigned(&self, n: usize) -> Bytes {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        let nonce = body["auth"]["nonce"].as_str().unwrap();
        let other = format!("{n:04}{}", &nonce[4..]);
        Bytes::from(self.body.replace(nonce, &other))
    }

    /// Has such a body judged.
    fn judges(&self, body: Bytes) -> Judged<'_> {
        let nonces = OnceLock::new();
        self.judge
            .judge(&self.peer, &nonces, body, self.seen(), self.now_ms)
    }

    fn seen(&self) -> Seen {
        self.registry
            .seen(Whose::named(&self.peer.cluster_id, &self.peer.node_id))
    }

    /// The nodes whose reports are stored, once all that was put before is.
    async fn stored(&self) -> Vec<String> {
        self.put().await.unwrap().unwrap();
        let intakes = intakes(self.store.reader()).await.unwrap();
        let nodes = intakes.iter().map(|i| i.node_id.to_string());
        nodes.filter(|node| node != OTHER).collect()
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
        let of = (self.peer.cluster_id.clone(), OTHER.parse().unwrap());
        let (reply, told) = oneshot::channel();
        self.spool.put(
            Box::new(Accept::new(of, (1, 1), ([1; 70], [2; 64]), 1)),
            Box::new(reply),
        );
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
    // Nobody works them off before this test waits.
    let full = loop {
        let mut judged = scene.judged();
        if let Ok(ruling) = judged.ruled.try_recv() {
            break ruling.verdict;
        }
    };
    assert!(is_busy(&full), "{full:?}");
    for again in 0..3 {
        let verdict = scene.comes().now_or_never();
        assert!(verdict.as_ref().is_some_and(is_busy), "{again}: {verdict:?}");
    }
    // Of all that wait in vain nothing is stored.
    yield_now().await;
    scene.counts_once().await;
}

#[tokio::test]
async fn of_a_node_that_is_not_known_no_nonces_are_kept() {
    let scene = Scene::new().await;
    let nonces = OnceLock::new();
    let body = || Bytes::from(scene.body.clone());
    let unknown = Seen {
        node: None,
        ..scene.seen()
    };
    let mut judged = scene
        .judge
        .judge(&scene.peer, &nonces, body(), unknown, scene.now_ms);
    assert_eq!(refusal(judged.ruling().await.verdict).code, Code::UnknownNode);
    assert!(nonces.get().is_none());
    assert_eq!(scene.judge.records.window.len(), 0);
    let mut judged = scene
        .judge
        .judge(&scene.peer, &nonces, body(), scene.seen(), scene.now_ms);
    let verdict = judged.ruling().await.verdict;
    assert!(matches!(verdict, Verdict::Accepted { .. }), "{verdict:?}");
    assert!(nonces.get().is_some());
    assert_eq!(scene.judge.records.window.len(), 1);
    assert_eq!(
        refusal(scene.comes().await).code,
        Code::NonceReused,
        "over another connection"
    );
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
    // Whoever sent it went away before it was read.
    assert!(scene.comes().now_or_never().is_none());
    // Or before anybody had looked what becomes of it.
    drop(scene.judged());
    scene.counts_once().await;

    let mut scene = Scene::new().await;
    scene.writer.abort();
    assert!((&mut scene.writer).await.is_err());
    for again in 0..3 {
        let verdict = scene.comes().await;
        let stopped = matches!(verdict, Verdict::Unavailable(StoreError::Stopped));
        assert!(stopped, "{again}: {verdict:?}");
    }
}

#[tokio::test]
async fn nothing_is_stored_for_who_goes_away_at_any_step_nor_of_what_is_not_signed() {
    let scene = Scene::new().await;
    let (unread, judged) = scene.unread();
    drop(judged);
    assert!(unread.read().is_none());
    // Its nonce is nobody's as soon as nobody waits, or it is refused: each of these claims it anew.
    let (read, judged) = scene.read();
    drop(judged);
    let (again, judged) = scene.read();
    read.go_on();
    drop(judged);
    again.refuse();
    let (read, mut judged) = scene.read();
    read.refuse();
    // Whoever verified it was wrong.
    let verdict = judged.ruling().await.verdict;
    assert!(matches!(verdict, Verdict::Unjudged), "{verdict:?}");
    assert!(scene.stored().await.is_empty());
    scene.counts_once().await;
}

#[tokio::test]
async fn whoever_goes_away_while_the_store_is_held_may_come_again_and_is_told_what_is_on_record() {
    let scene = Scene::new().await;
    let held = scene.store.begin().await.unwrap();
    let (read, judged) = scene.read();
    read.go_on();
    drop(judged);
    let (again, judged) = scene.read();
    again.go_on();
    held.rollback().await.unwrap();
    let mut judged = judged;
    assert_eq!(refusal(judged.ruling().await.verdict).code, Code::StaleSequence);
    assert_eq!(scene.stored().await, [scene.peer.node_id.as_str()]);
}

#[tokio::test]
async fn of_many_at_once_what_is_good_is_stored_once_and_of_anything_else_nothing() {
    for cpus in [1, 2] {
        let scene = Scene::on(cpus).await;
        let spoilt = scene.body.replace("\"auth\"", "\"author\"");
        let good = Bytes::from(scene.body.clone());
        // Fewer nonces than are kept of a node.
        let bodies = (0..120).map(|n| match n % 4 {
            0 => scene.unsigned(n),
            1 => Bytes::from(spoilt.clone()),
            _ if n < 60 => scene.unsigned(n),
            _ => good.clone(),
        });
        for new in [1, 0] {
            let mut accepted = 0;
            let all: Vec<_> = bodies.clone().map(|body| scene.judges(body)).collect();
            for (n, mut judged) in all.into_iter().enumerate() {
                let verdict = judged.ruling().await.verdict;
                match (n % 4, verdict) {
                    (1, Verdict::Problem { status: 400, refusal }) => {
                        assert_eq!(refusal.field.as_deref(), Some("auth"));
                    }
                    (2 | 3, Verdict::Accepted { .. }) if n >= 60 => accepted += 1,
                    (2 | 3, verdict) if n >= 60 => {
                        assert_eq!(refusal(verdict).code, Code::NonceReused);
                    }
                    // The second time as well: its nonce was not used up.
                    (_, verdict) => assert_eq!(refusal(verdict).code, Code::SignatureInvalid, "{n}"),
                }
            }
            assert_eq!(accepted, new);
            assert_eq!(scene.stored().await, [scene.peer.node_id.as_str()]);
        }
    }
}

#[tokio::test]
async fn what_is_to_be_stored_is_decided_by_both_its_signatures_and_never_by_fewer() {
    let scene = Scene::new().await;
    let (unread, _judged) = scene.unread();
    let request = HeartbeatRequest::parse(&unread.body).unwrap();
    let mut considered = unread.records.consider(
        &unread.peer,
        &request,
        (unread.seen, unread.nonces),
        (unread.now_ms, &unread.waits.claim),
    );
    assert!(considered.outcome.is_ok());
    assert_eq!(considered.decides(), Decides::Signatures);
    let both = considered.noted.take().unwrap();
    for few in [None, Some(Vec::new()), Some(both[..1].to_vec())] {
        considered.noted = few;
        assert_eq!(considered.decides(), Decides::Anew, "{:?}", considered.noted);
    }
    // One that is refused anyway is verified only if there is something to verify: what is wrong comes in a fixed order.
    considered.outcome = Err(Verdict::Unjudged);
    for (noted, decides) in [
        (None, Decides::Anew),
        (Some(Vec::new()), Decides::Outcome),
        (Some(both[..1].to_vec()), Decides::Signatures),
    ] {
        considered.noted = noted;
        assert_eq!(considered.decides(), decides);
    }
}

#[tokio::test]
async fn a_signature_of_another_length_is_told_at_once() {
    let scene = Scene::new().await;
    let body: serde_json::Value = serde_json::from_str(&scene.body).unwrap();
    let signature = body["auth"]["signature"].as_str().unwrap();
    let (mut unread, mut judged) = scene.unread();
    unread.body = Bytes::from(scene.body.replace(signature, "AAAA"));
    assert!(unread.read().is_none());
    let verdict = judged.ruling().await.verdict;
    let Verdict::Problem { status: 400, refusal } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(refusal.field.as_deref(), Some("auth.signature"));
    scene.counts_once().await;
}

#[tokio::test]
async fn a_number_that_is_not_above_is_answered_with_the_highest_on_record_of_any_gateway() {
    let mut scene = Scene::new().await;
    let Verdict::Accepted { epoch, sequence, .. } = scene.comes().await else {
        panic!("it is sound");
    };
    let (cluster, node) = (&scene.peer.cluster_id, &scene.peer.node_id);
    let (whose, from) = (Whose::named(cluster, node), [127, 0, 0, 1].into());
    scene
        .registry
        .accepted(whose, epoch, sequence, scene.now_ms, from);
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
    let scene = Scene::of(1, hashed).await;
    assert_eq!(refusal(scene.comes().await).code, Code::ReportMismatch);
    scene.sets(JobIds::Hashed);
    scene.sets(JobIds::Plain);
    scene.counts_once().await;

    // Its agent has signed with the ids as they are.
    let scene = Scene::new().await;
    scene.sets(JobIds::Hashed);
    assert_eq!(refusal(scene.comes().await).code, Code::ReportMismatch);
}
