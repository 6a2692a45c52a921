use std::collections::HashSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::{JoinClaims, JoinPurpose};

use super::*;
use crate::control::{self, Disabled};
use crate::db;
use crate::identity::{Claims, Issued, PeerIdentity, Seed, TokenKey};
use crate::page::Window;
use crate::store::Store;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const DAY: u64 = 86_400;
/// Id of a join token.
const JOIN: &str = "join";

async fn store(dir: &tempfile::TempDir) -> Store {
    Store::for_test(&dir.path().join("p.db")).await
}

fn node() -> (ClusterId, NodeId) {
    ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap())
}

fn issued(name: &str, at: UnixSeconds) -> Issued {
    Issued {
        pem: String::new(),
        serial: format!("{name}-serial"),
        fingerprint: name.to_owned(),
        issuer: "CN=Own".to_owned(),
        not_after: at.plus(DAY),
    }
}

/// One of an outside CA, issued then.
fn outside(name: &str, at: UnixSeconds) -> PeerIdentity {
    let (cluster_id, node_id) = node();
    PeerIdentity {
        cluster_id,
        node_id,
        epoch: Some(2),
        serial: format!("{name}-serial"),
        fingerprint: name.to_owned(),
        issuer: "CN=Site".to_owned(),
        not_before: at,
        not_after: at.plus(DAY),
    }
}

async fn renew(store: &Store, name: &str, epoch: u64, now: UnixSeconds) -> Result<(), NoRoom> {
    let (cluster, node) = node();
    let mut tx = store.begin().await.unwrap();
    let done = record_certificate(&mut tx, &cluster, &node, epoch, &issued(name, now), now).await;
    tx.commit().await.unwrap();
    done.unwrap()
}

async fn revoke_all(store: &Store, now: UnixSeconds) -> u64 {
    let (cluster, node) = node();
    let mut tx = store.begin().await.unwrap();
    let count = revoke_certificates(&mut tx, Which::Node(&cluster, &node), now).await;
    tx.commit().await.unwrap();
    count.unwrap()
}

async fn revoked(store: &Store) -> HashSet<String> {
    revoked_fingerprints(store.reader()).await.unwrap()
}

#[tokio::test]
async fn whoever_renews_seventy_times_gets_none_that_is_not_revoked_with_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let mut given = HashSet::new();
    for i in 0..70 {
        let name = format!("own-{i}");
        match renew(&store, &name, 2, NOW.plus(i)).await {
            Ok(()) => {
                given.insert(name);
            }
            // Until the first one ends.
            Err(full) => assert_eq!(full.until, NOW.plus(DAY)),
        }
    }
    assert_eq!(given.len(), 64);
    assert_eq!(revoke_all(&store, NOW.plus(100)).await, 64);
    assert_eq!(revoked(&store).await, given);
    // The node itself goes on.
    assert_eq!(renew(&store, "after", 2, NOW.plus(101)).await, Ok(()));
}

#[tokio::test]
async fn what_has_ended_and_what_is_of_an_earlier_registration_leaves_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    for i in 0..64 {
        assert_eq!(renew(&store, &format!("one-{i}"), 1, NOW).await, Ok(()));
    }
    assert!(renew(&store, "too-many", 1, NOW).await.is_err());
    for i in 0..64 {
        assert_eq!(renew(&store, &format!("two-{i}"), 2, NOW.plus(i)).await, Ok(()));
    }
    let until = NOW.plus(DAY);
    assert_eq!(
        renew(&store, "early", 2, until.minus(1)).await,
        Err(NoRoom { until })
    );
    assert_eq!(renew(&store, "in-time", 2, until.plus(1)).await, Ok(()));
}

#[tokio::test]
async fn an_outside_certificate_that_has_no_place_on_record_is_none_and_takes_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    for i in 0..64 {
        let peer = outside(&format!("outside-{i}"), NOW);
        assert_eq!(
            record_outside(&store, &peer, NOW).await.unwrap(),
            Outside::OnRecord { since: NOW }
        );
    }
    let one_more = outside("one-more", NOW);
    assert_eq!(
        record_outside(&store, &one_more, NOW).await.unwrap(),
        Outside::NoRoom
    );
    // Those that have one come again, known from when they first came, and our own has none either.
    let first = outside("outside-0", NOW);
    assert_eq!(
        record_outside(&store, &first, NOW.plus(90)).await.unwrap(),
        Outside::OnRecord { since: NOW }
    );
    assert!(renew(&store, "own", 2, NOW).await.is_err());
    assert_eq!(revoke_all(&store, NOW.plus(1)).await, 64);
    assert!(!revoked(&store).await.contains("one-more"));
    // It is shown again.
    assert_eq!(
        record_outside(&store, &one_more, NOW.plus(2)).await.unwrap(),
        Outside::Revoked
    );
    assert!(revoked(&store).await.contains("one-more"));
}

#[tokio::test]
async fn an_outside_certificate_that_is_first_seen_after_all_were_revoked_counts_if_it_was_issued_later() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    assert_eq!(revoke_all(&store, NOW).await, 0);
    let later = NOW.plus(5);
    for (name, at, found) in [
        ("before", NOW.minus(60), Outside::Revoked),
        ("in-that-second", NOW, Outside::Revoked),
        ("after", NOW.plus(1), Outside::OnRecord { since: later }),
    ] {
        let peer = outside(name, at);
        for _ in 0..2 {
            assert_eq!(
                record_outside(&store, &peer, later).await.unwrap(),
                found,
                "{name}"
            );
        }
        let mut tx = store.begin().await.unwrap();
        let revoked = certificate_is_revoked(&mut tx, &peer).await.unwrap();
        assert_eq!(revoked, found == Outside::Revoked, "{name}");
        tx.commit().await.unwrap();
    }
    // A clock that went back takes nothing of it away.
    assert_eq!(revoke_all(&store, NOW.minus(30)).await, 1);
    let peer = outside("then", NOW.minus(10));
    assert_eq!(
        record_outside(&store, &peer, later).await.unwrap(),
        Outside::Revoked
    );
    let other = PeerIdentity {
        node_id: "node-0002".parse().unwrap(),
        ..outside("another-node", NOW.minus(60))
    };
    assert_eq!(
        record_outside(&store, &other, later).await.unwrap(),
        Outside::OnRecord { since: later }
    );
}

/// Two of a node are on record: one of the gateway's own CA, `stolen`, and `theirs` of an outside one, which this is.
async fn stolen_and_theirs(store: &Store) -> PeerIdentity {
    let theirs = outside("theirs", NOW);
    assert_eq!(renew(store, "stolen", 2, NOW).await, Ok(()));
    assert_eq!(
        record_outside(store, &theirs, NOW).await.unwrap(),
        Outside::OnRecord { since: NOW }
    );
    theirs
}

#[tokio::test]
async fn a_clock_that_was_ahead_for_a_moment_takes_no_revocation_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let theirs = stolen_and_theirs(&store).await;
    let mut tx = store.begin().await.unwrap();
    for one in ["stolen", "theirs"] {
        let which = Which::Fingerprint(one);
        assert_eq!(revoke_certificates(&mut tx, which, NOW.plus(1)).await.unwrap(), 1);
    }
    tx.commit().await.unwrap();
    let both = HashSet::from(["stolen".to_owned(), "theirs".to_owned()]);
    for ahead in [2 * DAY, 390 * DAY] {
        let recovered = format!("ahead-{ahead}");
        assert_eq!(renew(&store, &recovered, 2, NOW.plus(ahead)).await, Ok(()));
        assert_eq!(revoked(&store).await, both);
        assert_eq!(
            record_outside(&store, &theirs, NOW.plus(2)).await.unwrap(),
            Outside::Revoked
        );
    }
    // But not for ever.
    assert_eq!(renew(&store, "at-last", 2, NOW.plus(402 * DAY)).await, Ok(()));
    assert!(revoked(&store).await.is_empty());
}

/// Those that the list shows.
async fn listed(store: &Store, now: UnixSeconds) -> HashSet<String> {
    let page = certificates(store.reader(), None, None, Window::default(), now).await;
    page.unwrap().items.into_iter().map(|c| c.fingerprint).collect()
}

#[tokio::test]
async fn a_clock_that_was_ahead_for_a_moment_takes_no_certificate_from_the_reach_of_a_revocation() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let theirs = stolen_and_theirs(&store).await;
    // The node recovers by its key.
    for (recovered, ahead) in [("first", 2 * DAY), ("second", 390 * DAY)] {
        assert_eq!(renew(&store, recovered, 2, NOW.plus(ahead)).await, Ok(()));
        // What has ended is in nobody's way.
        assert_eq!(
            listed(&store, NOW.plus(ahead)).await,
            HashSet::from([recovered.to_owned()])
        );
    }
    let all = ["stolen", "theirs", "first", "second"].map(str::to_owned);
    let all = HashSet::from(all);
    assert_eq!(listed(&store, NOW.plus(1)).await, all);
    assert_eq!(revoke_all(&store, NOW.plus(1)).await, 4);
    assert_eq!(revoked(&store).await, all);
    assert_eq!(
        record_outside(&store, &theirs, NOW.plus(2)).await.unwrap(),
        Outside::Revoked
    );
}

#[tokio::test]
async fn a_clock_that_is_ahead_when_a_node_s_certificates_are_revoked_leaves_none_that_counts_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    assert_eq!(renew(&store, "stolen", 2, NOW).await, Ok(()));
    assert_eq!(revoke_all(&store, NOW.plus(2 * DAY)).await, 0, "none that counts");
    assert_eq!(revoked(&store).await, HashSet::from(["stolen".to_owned()]));
}

#[tokio::test]
async fn of_what_has_ended_a_node_keeps_the_last_eight_and_takes_none_of_another_s() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let cluster = node().0;
    let other: NodeId = "node-0002".parse().unwrap();
    let mut tx = store.begin().await.unwrap();
    let theirs = record_certificate(&mut tx, &cluster, &other, 2, &issued("other", NOW), NOW).await;
    assert_eq!(theirs.unwrap(), Ok(()));
    tx.commit().await.unwrap();
    // Each has ended when the next is issued.
    for i in 0..80 {
        let name = format!("own-{i}");
        assert_eq!(renew(&store, &name, 2, NOW.plus(2 * DAY * i)).await, Ok(()));
    }
    let own = (71..80).map(|i| format!("own-{i}"));
    let all: HashSet<String> = own.chain(["other".to_owned()]).collect();
    assert_eq!(listed(&store, NOW).await, all);
    assert_eq!(revoke_all(&store, NOW).await, 9);
}

/// A join token for so many nodes, which counts for a day from `NOW` on.
async fn make_join_token(store: &Store, uses: u32) {
    let claims = JoinClaims {
        iss: TokenKey::ISSUER.to_owned(),
        purpose: JoinPurpose::Join,
        cluster_id: node().0,
        provider_address: None,
        jti: JOIN.to_owned(),
        iat: NOW,
        exp: NOW.plus(DAY),
        ca_sha256: "0".repeat(64),
        chain_id: "hpc-1".to_owned(),
        contract: "wasm1abc".to_owned(),
        task_key: None,
        endpoint: None,
    };
    let terms = JoinTerms {
        uses,
        ranges: Vec::new(),
        approval: false,
    };
    let mut tx = store.begin().await.unwrap();
    insert_join(&mut tx, &claims, &terms).await.unwrap();
    tx.commit().await.unwrap();
}

/// The key of each node here.
fn key() -> AgentKey {
    *Seed::from_bytes(&[1; 32]).unwrap().public()
}

/// A token for this node, which counts for a day from `NOW` on.
fn claims(jti: String, name: &str) -> Claims {
    Claims {
        iss: TokenKey::ISSUER.to_owned(),
        jti,
        sub: name.parse().unwrap(),
        cluster_id: node().0,
        provider_address: None,
        pubkey: key(),
        iat: NOW.0,
        exp: NOW.plus(DAY).0,
        ca_sha256: "0".repeat(64),
        chain_id: "hpc-1".to_owned(),
        contract: "wasm1abc".to_owned(),
        task_key: None,
        endpoint: None,
    }
}

/// What this node finds that comes with the join token.
async fn comes(store: &Store, name: &str, now: UnixSeconds) -> Joined {
    let claims = claims(use_id(JOIN, name, key().as_bytes()), name);
    let mut tx = store.begin().await.unwrap();
    let found = join(&mut tx, JOIN, &claims, [127, 0, 0, 1].into(), now).await;
    tx.commit().await.unwrap();
    found.unwrap()
}

#[tokio::test]
async fn a_join_token_that_has_expired_serves_no_node_and_none_of_its_uses_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    make_join_token(&store, 2).await;
    let end = NOW.plus(DAY);
    let in_time = Joined::Yes { held: false };
    assert_eq!(comes(&store, "node-0001", end.minus(1)).await, in_time);
    // Neither another node, nor again the one that came in time: a node's own token has the same end.
    for now in [end, end.plus(DAY)] {
        for name in ["node-0001", "node-0002"] {
            assert_eq!(comes(&store, name, now).await, Joined::Expired, "{name}");
        }
    }
    let all = list_joins(store.reader(), Window::default()).await.unwrap().items;
    let state = |now| all[0].state(now);
    assert_eq!(
        (all.len(), all[0].used, state(end.minus(1)), state(end)),
        (1, 1, TokenState::Open, TokenState::Expired)
    );
}

/// What a node finds that registers with a token of its own, again after a refusal that is so long ago.
async fn registers(store: &Store, name: &str, now_ms: u64, retry_ms: u64) -> Registration {
    let (cluster_id, node_id) = (node().0, name.parse().unwrap());
    let new = NewRegistration {
        jti: name,
        cluster_id: &cluster_id,
        node_id: &node_id,
        public_key: &key(),
        csr: &[1],
        hostname: None,
        hardware_fingerprint: None,
        rotation: None,
        held: false,
        quoted_by: None,
    };
    let mut tx = store.begin().await.unwrap();
    if find(&mut tx, name).await.unwrap().is_none() {
        insert(&mut tx, &claims(name.to_owned(), name)).await.unwrap();
    }
    let claimed = claim(&mut tx, &new, now_ms, retry_ms).await.unwrap();
    tx.commit().await.unwrap();
    match claimed {
        Claimed::Ours(registration) => *registration,
        other => panic!("{other:?}"),
    }
}

/// Those that wait to be signed.
async fn waiting(store: &Store) -> Vec<u64> {
    let mut conn = store.reader().acquire().await.unwrap();
    let all = queued(&mut conn, NOW, 9).await.unwrap();
    all.into_iter().map(|r| r.id).collect()
}

fn disabled(name: &str) -> Disabled {
    Disabled {
        cluster_id: node().0,
        node_id: name.parse().unwrap(),
        reason: "its key was stolen".to_owned(),
        by: "somebody".to_owned(),
        disabled_at: NOW,
    }
}

/// A transaction of registrations.
async fn batch(conn: &mut db::Conn) -> u64 {
    let batch = "INSERT INTO batch (signer, kind, created_at) VALUES ('s', 'register', 0) RETURNING id";
    let row = db::query(batch).fetch_one(conn).await.unwrap();
    u64::try_from(row.get::<i64, _>("id")).unwrap()
}

#[tokio::test]
async fn what_waits_of_a_node_when_it_is_disabled_is_refused_and_its_token_stays_good() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let at = NOW.0 * 1000;
    let (cluster_id, node_id) = node();
    let first = registers(&store, "node-0001", at, 0).await.id;
    let other = registers(&store, "node-0002", at, 0).await.id;
    assert_eq!(waiting(&store).await, [first, other]);
    // Whether a transaction that is being signed with these is stored, and so sent.
    let all_go_on = async |ids: &[u64]| {
        let mut tx = store.begin().await.unwrap();
        let batch = batch(&mut tx).await;
        let bound = bind_to_batch(&mut tx, batch, ids, at).await.unwrap();
        tx.rollback().await.unwrap();
        bound
    };
    assert!(all_go_on(&[first, other]).await);
    let mut tx = store.begin().await.unwrap();
    control::disable(&mut tx, &disabled("node-0001")).await.unwrap();
    end_disabled(&mut tx, &cluster_id, &node_id, at).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(waiting(&store).await, [other]);
    assert!(!all_go_on(&[first, other]).await && all_go_on(&[other]).await);
    let refused = (RegistrationState::Refused, Some(Code::NodeDisabled));
    let told = registers(&store, "node-0001", at + 1, 10_000).await;
    assert_eq!((told.state, told.code), refused);
    // One that has come in that moment.
    let again = registers(&store, "node-0001", at + 20_000, 10_000).await;
    assert_eq!(again.state, RegistrationState::Queued);
    assert_eq!(waiting(&store).await, [other]);
    assert!(!all_go_on(&[first]).await);
    // One whose transaction is dead.
    let mut tx = store.begin().await.unwrap();
    assert!(control::enable(&mut tx, &cluster_id, &node_id).await.unwrap());
    let batch = batch(&mut tx).await;
    assert!(
        bind_to_batch(&mut tx, batch, &[first], at + 20_000)
            .await
            .unwrap()
    );
    control::disable(&mut tx, &disabled("node-0001")).await.unwrap();
    release(&mut tx, batch, at + 30_000).await.unwrap();
    tx.commit().await.unwrap();
    let told = registers(&store, "node-0001", at + 30_001, 10_000).await;
    assert_eq!((told.state, told.code), refused);
    let mut tx = store.begin().await.unwrap();
    assert!(control::enable(&mut tx, &cluster_id, &node_id).await.unwrap());
    tx.commit().await.unwrap();
    registers(&store, "node-0001", at + 40_000, 10_000).await;
    assert_eq!(waiting(&store).await, [first, other]);
}

#[tokio::test]
async fn what_waits_of_one_disabled_node_does_not_end_with_what_waits_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let at = NOW.0 * 1000;
    let first = registers(&store, "node-0001", at, 0).await.id;
    // Let go on by an approval after its node was disabled.
    registers(&store, "node-0002", at, 0).await;
    let mut tx = store.begin().await.unwrap();
    let batch = batch(&mut tx).await;
    assert!(bind_to_batch(&mut tx, batch, &[first], at).await.unwrap());
    for name in ["node-0001", "node-0002"] {
        control::disable(&mut tx, &disabled(name)).await.unwrap();
    }
    release(&mut tx, batch, at).await.unwrap();
    let (cluster_id, node_id) = node();
    end_disabled(&mut tx, &cluster_id, &node_id, at).await.unwrap();
    tx.commit().await.unwrap();
    let mut states = Vec::new();
    for name in ["node-0001", "node-0002"] {
        states.push(registers(&store, name, at + 1, 10_000).await.state);
    }
    assert_eq!(states, [RegistrationState::Refused, RegistrationState::Queued]);
}
