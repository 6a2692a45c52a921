//! The key that signs a cluster's orders and tasks, and how it came to be.

use std::sync::Arc;

use hpc_schema::id::ClusterId;
use hpc_schema::task::KeyRotation;

use super::Gateway;
use super::answer::Failure;
use crate::db::Conn;
use crate::identity::Seed;
use crate::task;

/// The key that counts, with the rotations that lead to it; none if the cluster has no key here.
pub(super) async fn of(
    gateway: &Gateway,
    conn: &mut Conn,
    cluster: &ClusterId,
) -> Result<Option<(Arc<Seed>, Vec<KeyRotation>)>, Failure> {
    let steps = task::rotations(conn, cluster).await?;
    Ok(counting(gateway, cluster, &steps)?.map(|key| (key, steps)))
}

/// The key that counts after these rotations.
pub(super) fn counting(
    gateway: &Gateway,
    cluster: &ClusterId,
    steps: &[KeyRotation],
) -> Result<Option<Arc<Seed>>, Failure> {
    gateway
        .tasks
        .counts(cluster, steps.last().map(|s| &s.new_key))
        .map_err(|e| {
            // Operators are told once, as of a trouble: with each request it would be too often.
            tracing::debug!(%cluster, error = %e, "the cluster's task key cannot be used");
            Failure::unavailable(60, "the cluster's task key cannot be read")
        })
}
