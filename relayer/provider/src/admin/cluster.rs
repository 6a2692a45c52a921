//! Whether a cluster is there to be served.

use std::collections::BTreeSet;
use std::time::Duration;

use hpc_chain::query::QueryError;
use hpc_chain::rpc::AsRpcError as _;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use tokio::time::timeout;

use super::Admin;
use super::error::AdminError;
use crate::daemon::client;
use crate::registry;

/// How long the chain is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

impl Admin {
    /// Refuses clusters that the chain says it does not have and that the configuration does not name: a token would have one
    /// served from then on, and leave it a task key. Where the chain cannot be asked nothing is known, and it is asked of no
    /// other one.
    ///
    /// # Errors
    /// `unknown_cluster`; if the store fails or an endpoint of the configuration is none.
    pub(super) async fn known_clusters(&self, clusters: &BTreeSet<&ClusterId>) -> Result<(), AdminError> {
        let mut unheard_of = Vec::new();
        for cluster in clusters {
            let named = self.config.chain.clusters.contains(cluster);
            let reader = self.store.reader();
            if !named && registry::cluster_owner(reader, cluster).await?.is_none() {
                unheard_of.push(*cluster);
            }
        }
        if unheard_of.is_empty() {
            return Ok(());
        }
        let client = client(&self.config).map_err(|e| AdminError::Home(e.to_string()))?;
        for cluster in unheard_of {
            let asked = timeout(PATIENCE, client.cluster(cluster.clone())).await;
            let error = match asked {
                Ok(Ok(_)) => continue,
                Ok(Err(QueryError::Contract {
                    code: Some(Code::UnknownCluster),
                    ..
                })) => {
                    let what =
                        format!("the chain has no cluster {cluster}, and chain.clusters does not name it");
                    return Err(AdminError::field(Code::UnknownCluster, "cluster_id", what));
                }
                // An answer, of this cluster alone.
                Ok(Err(e)) if e.rpc().is_none() => {
                    tracing::warn!(%cluster, error = %e, "tokens for a cluster of which the chain did not say whether it has it");
                    continue;
                }
                Ok(Err(e)) => e.to_string(),
                Err(_) => "no answer in 3 s".to_owned(),
            };
            tracing::warn!(%cluster, error, "tokens for clusters of which the chain did not say whether it has them, from this one on");
            return Ok(());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;
    use crate::config::Config;
    use crate::fake_chain::{self, Answer, UNKNOWN, chain};

    #[tokio::test]
    async fn the_chain_is_asked_once_for_each_cluster_and_no_more_once_it_is_silent() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // There, silent, and from then on without the clusters.
        let answers = move |_: &serde_json::Value| match count.fetch_add(1, Ordering::Relaxed) {
            0 => fake_chain::cluster("hpc-cluster-1"),
            1 => Answer::Breaks,
            _ => UNKNOWN,
        };
        let chain = chain(Arc::new(AtomicU64::new(5)), answers).await;
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.chain.id = "chain-1".to_owned();
        config.chain.contract = "wasm1contract".to_owned();
        config.chain.rpc = vec![chain.endpoints().best().unwrap().name().to_owned()];
        config.chain.clusters = vec!["hpc-cluster-0".parse().unwrap()];
        let admin = Admin::alone(dir.path(), config).await;
        let ids: Vec<ClusterId> = (0..5)
            .map(|n| format!("hpc-cluster-{n}").parse().unwrap())
            .collect();
        admin.known_clusters(&ids.iter().collect()).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let refused = admin.known_clusters(&ids.iter().collect()).await;
        assert!(
            matches!(&refused, Err(AdminError::Refused(r)) if r.code == Code::UnknownCluster),
            "{refused:?}"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
