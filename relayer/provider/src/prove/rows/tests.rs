use hpc_chain::proof::Inclusion;
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

#[tokio::test]
async fn a_transaction_that_took_effect_is_known_by_its_block_and_missed_until_it_has_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::for_test(&dir.path().join("p.db")).await;
    let hash = |byte: &str| -> TxHash { byte.repeat(32).parse().unwrap() };
    let mut tx = store.begin().await.unwrap();
    for (byte, ended, height) in [
        ("AA", Some("included"), Some(9)),
        ("BB", Some("consumed"), Some(12)),
        ("CC", None, None),
    ] {
        db::query("INSERT INTO batch (signer, kind, hash, created_at, ended, height) VALUES ('relayer', 'reports', ?, 0, ?, ?)")
            .bind(hash(byte).to_string())
            .bind(ended)
            .bind(height.map(int))
            .execute(&mut *tx)
            .await
            .unwrap();
        db::query("INSERT INTO evidence (tx, asked_at) VALUES (?, 0)")
            .bind(hash(byte).to_string())
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    for (byte, known) in [("AA", Some(9)), ("BB", None), ("CC", None), ("DD", None)] {
        assert_eq!(height(store.reader(), hash(byte)).await.unwrap(), known, "{byte}");
    }
    assert_eq!(missing(store.reader()).await.unwrap(), 3);
    let evidence = Evidence {
        height: 9,
        tx: String::new(),
        inclusion: Inclusion {
            index: 0,
            total: 1,
            aunts: Vec::new(),
        },
        signed_header: serde_json::Value::Null,
        validators: serde_json::Value::Null,
    };
    let mut tx = store.begin().await.unwrap();
    super::store(&mut tx, hash("AA"), Some(&evidence), 5_000)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(missing(store.reader()).await.unwrap(), 2);
}

#[tokio::test]
async fn the_block_of_a_transaction_is_found_without_reading_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("p.db")).await.unwrap();
    let row = db::query(format!("EXPLAIN QUERY PLAN {HEIGHT}"))
        .bind("AA")
        .fetch_one(store.reader())
        .await
        .unwrap();
    let plan: String = row.get("detail");
    assert!(plan.contains("batch_included"), "{plan}");
}
