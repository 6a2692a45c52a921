//! What is on record and nobody can use any more.

use crate::gateway::Gateway;
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
    if let Err(e) = gone(store, gateway).await {
        tracing::warn!(error = %e, "nodes that are on record no more are forgotten later");
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

async fn gone(store: &Store, gateway: &Gateway) -> Result<(), StoreError> {
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
    gateway.judge.forget(gone);
    Ok(())
}
