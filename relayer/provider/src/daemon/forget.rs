//! What is on record and nobody can use any more.

use crate::gateway::Gateway;
use crate::spool::Gone;
use crate::store::{Store, StoreError};
use crate::{clock, enrol, registry, spool};

/// How long tokens that have expired, and registrations that have ended, stay on record.
const ENROLMENTS_KEPT_SECONDS: u64 = 90 * 24 * 3600;
/// How long it is remembered what came of a node that is not on record: an endpoint may have been wrong about it.
const GONE_KEPT_MS: u64 = 24 * 3600 * 1000;

/// Forgets it, a bounded number of rows at a time; what fails is tried again with the next call.
pub(super) async fn old(store: &Store, gateway: &Gateway) {
    if let Err(e) = enrolments(store).await {
        tracing::warn!(error = %e, "old tokens and registrations are forgotten later");
    }
    match gone(store).await {
        Ok(gone) => gateway.judge.forget(gone),
        Err(e) => tracing::warn!(error = %e, "nodes that are on record no more are forgotten later"),
    }
}

async fn enrolments(store: &Store) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    let rows = enrol::prune(&mut tx, clock::now().minus(ENROLMENTS_KEPT_SECONDS)).await?;
    tx.commit().await?;
    if rows > 0 {
        tracing::info!(rows, "old tokens and registrations are forgotten");
    }
    Ok(())
}

/// From when on its certificates are revoked (`revoked_before`) and its pinned TPM (`attestation`) stay: no time is long enough
/// for either. An outside CA may date a certificate for decades and number it for a registration to come, and no machine takes
/// the name of one that was off until the chain pruned it without the operator's word.
async fn gone(store: &Store) -> Result<Vec<Gone>, StoreError> {
    let before = clock::now_ms().saturating_sub(GONE_KEPT_MS);
    let mut tx = store.begin().await?;
    let gone = spool::forget_gone(&mut tx, before).await?;
    let contacts = registry::forget_contacts(&mut tx, before).await?;
    tx.commit().await?;
    if !gone.is_empty() || contacts > 0 {
        tracing::info!(
            nodes = gone.len(),
            contacts,
            "nodes that are on record no more are forgotten"
        );
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use hpc_schema::id::{ClusterId, NodeId};

    use super::*;
    use crate::attest::{self, Quoted};
    use crate::db;
    use crate::enrol::{Outside, Which};
    use crate::identity::PeerIdentity;

    const DAY: u64 = 86_400;
    /// How long ago the node was last heard of.
    const AGO: u64 = 4000 * DAY;

    #[tokio::test]
    async fn the_revocation_of_all_its_certificates_and_its_pinned_tpm_outlive_a_node_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let node: NodeId = "node-0001".parse().unwrap();
        let now = clock::now();
        let then = now.minus(AGO);
        let quoted = Quoted {
            key: "ab".repeat(32),
            pcrs: Vec::new(),
        };
        let mut tx = store.begin().await.unwrap();
        db::query(
            "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at)
             VALUES (?, ?, 3, 1, 1, 1)",
        )
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(&mut *tx)
        .await
        .unwrap();
        enrol::revoke_certificates(&mut tx, Which::Node(&cluster, &node), then)
            .await
            .unwrap();
        attest::pin(&mut tx, (&cluster, &node), &quoted, then.0)
            .await
            .unwrap();
        tx.commit().await.unwrap();

        enrolments(&store).await.unwrap();
        let forgotten = gone(&store).await.unwrap();
        assert_eq!((forgotten.len(), &forgotten[0].node_id), (1, &node));

        // It registers anew, in epoch 9. A CA that takes the number from the request has issued for that before.
        let stolen = PeerIdentity {
            cluster_id: cluster.clone(),
            node_id: node.clone(),
            epoch: Some(9),
            serial: "ab".to_owned(),
            fingerprint: "cd".repeat(32),
            issuer: "CN=Site".to_owned(),
            not_before: then.minus(1),
            not_after: now.plus(DAY),
        };
        let found = enrol::record_outside(&store, &stolen, now).await.unwrap();
        assert_eq!(found, Outside::Revoked);
        let pinned = attest::pinned(store.reader(), &cluster, &node).await.unwrap();
        assert_eq!(pinned.unwrap().key, quoted.key);
    }
}
