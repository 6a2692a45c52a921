use std::collections::HashSet;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::{JoinClaims, JoinPurpose};

use super::*;
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
            Outside::OnRecord
        );
    }
    let one_more = outside("one-more", NOW);
    assert_eq!(
        record_outside(&store, &one_more, NOW).await.unwrap(),
        Outside::NoRoom
    );
    // Those that have one come again, and our own has none either.
    let first = outside("outside-0", NOW);
    assert_eq!(
        record_outside(&store, &first, NOW).await.unwrap(),
        Outside::OnRecord
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
        ("after", NOW.plus(1), Outside::OnRecord),
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
        Outside::OnRecord
    );
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

/// What this node finds that comes with the join token.
async fn comes(store: &Store, name: &str, now: UnixSeconds) -> Joined {
    let pubkey = *Seed::from_bytes(&[1; 32]).unwrap().public();
    let claims = Claims {
        iss: TokenKey::ISSUER.to_owned(),
        jti: use_id(JOIN, name, pubkey.as_bytes()),
        sub: name.parse().unwrap(),
        cluster_id: node().0,
        provider_address: None,
        pubkey,
        iat: NOW.0,
        exp: NOW.plus(DAY).0,
        ca_sha256: "0".repeat(64),
        chain_id: "hpc-1".to_owned(),
        contract: "wasm1abc".to_owned(),
        task_key: None,
        endpoint: None,
    };
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
