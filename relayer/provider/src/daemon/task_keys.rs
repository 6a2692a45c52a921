//! The look at the clusters' task keys.

use std::collections::BTreeSet;

use hpc_schema::id::ClusterId;

use crate::gateway::Gateway;
use crate::home::Home;
use crate::identity::SeedError;
use crate::ops::Health;
use crate::registry::TaskKeys;
use crate::store::{Store, StoreError};
use crate::task;

/// The trouble of a key that signs no orders and tasks.
const CODE: &str = "task_key_unusable";

/// Says of each cluster with a key here whether its key can be used.
pub(super) async fn look(home: &Home, store: &Store, health: &Health, gateway: &Gateway) {
    let mut wrong: Vec<(String, SeedError)> = Vec::new();
    match TaskKeys::clusters(home) {
        Ok(clusters) => {
            for cluster in clusters {
                match key(store, gateway, &cluster).await {
                    Ok(found) => wrong.extend(found.map(|e| (cluster.to_string(), e))),
                    // The store's own trouble is told elsewhere, and says nothing of a key.
                    Err(e) => {
                        tracing::debug!(error = %e, "task keys are looked at again");
                        return;
                    }
                }
            }
        }
        Err(e) => wrong.push((String::new(), e)),
    }
    tell(health, &wrong);
}

/// What is wrong with the key that counts.
async fn key(store: &Store, gateway: &Gateway, cluster: &ClusterId) -> Result<Option<SeedError>, StoreError> {
    let mut conn = store.reader().acquire().await?;
    let steps = task::rotations(&mut conn, cluster).await?;
    let newest = steps.last().map(|s| &s.new_key);
    Ok(gateway.tasks.counts(cluster, newest).err())
}

fn tell(health: &Health, wrong: &[(String, SeedError)]) {
    for (cluster, e) in wrong {
        let of = if cluster.is_empty() {
            "the clusters' task keys".to_owned()
        } else {
            format!("the task key of {cluster}")
        };
        let message = format!("{of} cannot be used, its orders and tasks wait: {e}");
        health.raise_of("task_key_unusable", cluster, message);
    }
    let wrong: BTreeSet<&str> = wrong.iter().map(|(cluster, _)| cluster.as_str()).collect();
    for trouble in health.troubles().iter().filter(|t| t.code == CODE) {
        if !wrong.contains(trouble.subject.as_str()) {
            health.clear_of(CODE, &trouble.subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_key_that_cannot_be_used_is_a_trouble_until_it_can() {
        let health = Health::default();
        let bad = |cluster: &str| {
            let path = PathBuf::from(format!("keys/tasks/{cluster}.key"));
            (cluster.to_owned(), SeedError::Content { path })
        };
        tell(&health, &[bad("hpc-cluster-1"), bad("hpc-cluster-2")]);
        let said = health.readiness();
        assert!(!said.ready && said.reasons.len() == 2, "{said:?}");
        assert!(
            said.reasons[0].message.contains("keys/tasks/hpc-cluster-1.key"),
            "{said:?}"
        );
        tell(&health, &[bad("hpc-cluster-2")]);
        assert_eq!(health.troubles()[0].subject, "hpc-cluster-2");
        tell(&health, &[]);
        assert!(health.readiness().ready);
    }
}
