use hpc_schema::heartbeat::verify_heartbeat;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::registry::JobIds;

use super::*;
use crate::store::Store;
use crate::vectors::Vectors;

/// A heartbeat as it is stored.
fn stored() -> Vec<u8> {
    let vectors = Vectors::read();
    let mut stored = vectors.readable().filter_map(|(_, request, against)| {
        let verified = verify_heartbeat(&request, &against, &ZebraVerifier).ok()?;
        Some(full::full(
            &request.heartbeat,
            &verified,
            &vectors.key,
            JobIds::Plain,
        ))
    });
    stored.next().unwrap()
}

#[tokio::test]
async fn evidence_is_held_against_a_heartbeat_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::for_test(&dir.path().join("p.db")).await;
    store.bind("hpc-test-1", "contract").await.unwrap();
    let hash: TxHash = "AB".repeat(32).parse().unwrap();
    let sample = async || super::sample(store.reader(), hash).await.unwrap();
    assert!(matches!(sample().await, Sample::Gone));

    let cluster = "hpc-cluster-1".parse().unwrap();
    let kept = async |node: &str, full: &[u8]| {
        let which = Which {
            cluster: &cluster,
            node: &node.parse().unwrap(),
            epoch: 1,
            sequence: 7,
        };
        let mut tx = store.begin().await.unwrap();
        keep(&mut tx, which, full, 1_000).await.unwrap();
        db::query("UPDATE heartbeat SET tx = ?")
            .bind(hash.to_string())
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    // Damaged, and of a version to come.
    kept("node-a", b"{").await;
    kept("node-b", &[2; 300]).await;
    assert!(matches!(sample().await, Sample::Unreadable));

    kept("node-c", &stored()).await;
    let Sample::Kept(row) = sample().await else {
        panic!("one can be read");
    };
    assert_eq!(text::<NodeId>(&row, "node_id").unwrap().as_str(), "node-c");
}

#[tokio::test]
async fn what_is_asked_for_later_is_not_open_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::for_test(&dir.path().join("p.db")).await;
    let hash: TxHash = "CD".repeat(32).parse().unwrap();
    let mut tx = store.begin().await.unwrap();
    db::query("INSERT INTO evidence (tx, asked_at) VALUES (?, 0)")
        .bind(hash.to_string())
        .execute(&mut *tx)
        .await
        .unwrap();
    super::store(&mut tx, hash, None, 5_000).await.unwrap();
    tx.commit().await.unwrap();
    assert!(open(store.reader(), 5_000, 8).await.unwrap().is_empty());
    assert_eq!(open(store.reader(), 5_001, 8).await.unwrap(), [hash]);
}
