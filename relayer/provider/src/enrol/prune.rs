use hpc_schema::time::UnixSeconds;

use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Rows of a table that go at a time.
const MOST: i64 = 1000;

/// Forgets what nobody can use any more, a bounded number at a time; how many rows: registrations that ended before `before`
/// whose token had expired by then, or that still wait then, tokens that had and have none,
/// and join tokens that had and have no uses left on record. An expired token is refused for what it says itself, before it
/// is looked up.
///
/// What began the present registration of a node on record, or of which something accepted is still known, stays, for its
/// hardware is compared; so does the newest of a node that was refused, and a token and a join token of each cluster, for which
/// it is served.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before: UnixSeconds) -> Result<u64, StoreError> {
    let done = db::query(
        "DELETE FROM registration WHERE id IN (
           SELECT r.id FROM registration r JOIN token t ON t.jti = r.jti
           JOIN (SELECT cluster_id, node_id, max(id) AS id, max(CASE WHEN state = 'on_chain' THEN epoch END) AS epoch
                 FROM registration GROUP BY cluster_id, node_id) n
             ON n.cluster_id = r.cluster_id AND n.node_id = r.node_id
           WHERE t.expires_at_s < ?1 AND r.updated_at < ?2
             AND ((r.state = 'on_chain' AND (r.epoch < n.epoch OR (
                   NOT EXISTS (SELECT 1 FROM node k WHERE k.cluster_id = r.cluster_id AND k.node_id = r.node_id)
                   AND NOT EXISTS (SELECT 1 FROM intake i WHERE i.cluster_id = r.cluster_id AND i.node_id = r.node_id))))
               OR (r.state = 'refused' AND r.id < n.id)
               OR r.state = 'queued')
             AND NOT EXISTS (SELECT 1 FROM batch_registration b WHERE b.registration_id = r.id)
           LIMIT ?3)",
    )
    .bind(int(before.0))
    .bind(int(before.0.saturating_mul(1000)))
    .bind(MOST)
    .execute(&mut *conn)
    .await?;
    let mut gone = done.rows_affected();
    for (table, uses) in [
        ("token", "registration u WHERE u.jti = t.jti"),
        ("join_token", "token u WHERE u.parent = t.jti"),
    ] {
        let done = db::query(format!(
            "DELETE FROM {table} WHERE jti IN (
               SELECT t.jti FROM {table} t
               JOIN (SELECT cluster_id, max(jti) AS jti FROM {table} GROUP BY cluster_id) n ON n.cluster_id = t.cluster_id
               WHERE t.expires_at_s < ? AND t.jti < n.jti AND NOT EXISTS (SELECT 1 FROM {uses})
               LIMIT ?)"
        ))
        .bind(int(before.0))
        .bind(MOST)
        .execute(&mut *conn)
        .await?;
        gone += done.rows_affected();
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::scene::on_record;
    use crate::store::Store;

    const BEFORE: UnixSeconds = UnixSeconds(1_800_000_000);
    const OLD: i64 = 1_799_999_999;
    const NEW: i64 = 1_800_000_000;

    async fn store(dir: &tempfile::TempDir) -> Store {
        Store::for_test(&dir.path().join("p.db")).await
    }

    async fn token(conn: &mut Conn, jti: &str, cluster: &str, expires: i64) {
        db::query(
            "INSERT INTO token (jti, cluster_id, node_id, public_key, created_at_s, expires_at_s)
             VALUES (?, ?, 'node', ?, 1, ?)",
        )
        .bind(jti)
        .bind(cluster)
        .bind([1u8].as_slice())
        .bind(expires)
        .execute(conn)
        .await
        .unwrap();
    }

    /// With a token of its name that expired when it ended.
    async fn registration(conn: &mut Conn, jti: &str, node: &str, state: &str, epoch: Option<i64>, at: i64) {
        token(&mut *conn, jti, "c", at).await;
        db::query(
            "INSERT INTO registration (jti, cluster_id, node_id, public_key, csr, state, epoch, created_at, updated_at)
             VALUES (?, 'c', ?, ?, ?, ?, ?, 1, ?)",
        )
        .bind(jti)
        .bind(node)
        .bind([1u8].as_slice())
        .bind([2u8].as_slice())
        .bind(state)
        .bind(epoch)
        .bind(at * 1000)
        .execute(conn)
        .await
        .unwrap();
    }

    async fn left(store: &Store, table: &str) -> Vec<String> {
        let rows = db::query(format!("SELECT jti FROM {table} ORDER BY jti"));
        let rows = rows.fetch_all(store.reader()).await.unwrap();
        rows.iter().map(|row| row.get("jti")).collect()
    }

    async fn pruned(store: &Store) -> u64 {
        let mut tx = store.begin().await.unwrap();
        let gone = prune(&mut tx, BEFORE).await.unwrap();
        tx.commit().await.unwrap();
        gone
    }

    #[tokio::test]
    async fn a_token_goes_after_its_time_unless_it_is_the_last_of_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir).await;
        let mut tx = store.begin().await.unwrap();
        for (jti, cluster, expires) in [
            ("a-old", "c", OLD),
            ("b-new", "c", NEW),
            ("c-old", "c", OLD),
            ("z-old", "c", OLD),
            ("only", "d", OLD),
        ] {
            token(&mut tx, jti, cluster, expires).await;
        }
        tx.commit().await.unwrap();
        assert_eq!(pruned(&store).await, 2);
        assert_eq!(left(&store, "token").await, ["b-new", "only", "z-old"]);
        assert_eq!(pruned(&store).await, 0);
    }

    #[tokio::test]
    async fn a_registration_goes_after_its_time_once_a_newer_one_counts_and_its_token_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir).await;
        let mut tx = store.begin().await.unwrap();
        for (jti, node, state, epoch, at) in [
            ("a1", "a", "on_chain", Some(1), OLD),
            ("a2", "a", "refused", None, OLD),
            ("a3", "a", "on_chain", Some(2), OLD),
            // Its hardware is still that of the one before.
            ("a4", "a", "refused", None, OLD),
            // Nothing newer.
            ("b1", "b", "on_chain", Some(1), OLD),
            ("c1", "c", "refused", None, OLD),
            // Ended later.
            ("d1", "d", "on_chain", Some(1), NEW),
            ("d2", "d", "on_chain", Some(2), NEW),
            // The chain has pruned the node.
            ("d3", "h", "on_chain", Some(1), OLD),
            // Or an endpoint is wrong about it.
            ("d4", "i", "on_chain", Some(1), OLD),
            // Never sent, and too late for it.
            ("e1", "e", "queued", None, OLD),
            ("e2", "e", "on_chain", Some(1), OLD),
        ] {
            registration(&mut tx, jti, node, state, epoch, at).await;
        }
        for node in ["a", "b", "e", "f"] {
            on_record(&mut tx, "c", node).await;
        }
        db::query(
            "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at)
             VALUES ('c', 'i', 1, 1, 1, 1)",
        )
        .execute(&mut *tx)
        .await
        .unwrap();
        // Held for an approval that never came.
        registration(&mut tx, "g1", "g", "queued", None, OLD).await;
        registration(&mut tx, "g2", "g", "queued", None, NEW).await;
        db::query("UPDATE registration SET held = 1 WHERE node_id = 'g'")
            .execute(&mut *tx)
            .await
            .unwrap();
        // One of a transaction that has not ended.
        registration(&mut tx, "f1", "f", "refused", None, OLD).await;
        registration(&mut tx, "f2", "f", "on_chain", Some(1), OLD).await;
        let batch = "INSERT INTO batch (signer, kind, created_at) VALUES ('s', 'register', 0) RETURNING id";
        let row = db::query(batch);
        let batch: i64 = row.fetch_one(&mut *tx).await.unwrap().get("id");
        db::query(
            "INSERT INTO batch_registration (batch_id, item, registration_id)
             SELECT ?, 0, id FROM registration WHERE jti = 'f1'",
        )
        .bind(batch)
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(pruned(&store).await, 10, "five, each with its token");
        let stay = ["a3", "a4", "b1", "c1", "d1", "d2", "d4", "e2", "f1", "f2", "g2"];
        assert_eq!(left(&store, "registration").await, stay);
        assert_eq!(left(&store, "token").await, stay);
        assert_eq!(pruned(&store).await, 0);
    }

    #[tokio::test]
    async fn a_join_token_goes_after_the_last_of_its_uses() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir).await;
        let mut tx = store.begin().await.unwrap();
        for jti in ["a", "b", "z"] {
            db::query(
                "INSERT INTO join_token (jti, cluster_id, uses, ranges, approval, created_at_s, expires_at_s)
                 VALUES (?, 'c', 5, '', 0, 1, ?)",
            )
            .bind(jti)
            .bind(OLD)
            .execute(&mut *tx)
            .await
            .unwrap();
        }
        registration(&mut tx, "b-use", "a", "on_chain", Some(1), OLD).await;
        on_record(&mut tx, "c", "a").await;
        token(&mut tx, "a-use", "c", OLD).await;
        for (jti, parent) in [("a-use", "a"), ("b-use", "b")] {
            db::query("UPDATE token SET parent = ? WHERE jti = ?")
                .bind(parent)
                .bind(jti)
                .execute(&mut *tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(pruned(&store).await, 2);
        assert_eq!(left(&store, "join_token").await, ["b", "z"]);
        assert_eq!(left(&store, "token").await, ["b-use"]);
    }
}
