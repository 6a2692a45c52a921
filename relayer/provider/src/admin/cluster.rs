//! Whether a cluster is there to be served.

use std::time::Duration;

use hpc_chain::query::QueryError;
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
    /// Refuses a cluster that the chain says it does not have and that the configuration does not name: a token would have it
    /// served from then on, and leave it a task key. Of one that the chain cannot be asked about nothing is known.
    ///
    /// # Errors
    /// `unknown_cluster`; if the store fails or an endpoint of the configuration is none.
    pub(super) async fn known_cluster(&self, cluster: &ClusterId) -> Result<(), AdminError> {
        let named = self.config.chain.clusters.contains(cluster);
        let reader = self.store.reader();
        if named || registry::cluster_owner(reader, cluster).await?.is_some() {
            return Ok(());
        }
        let client = client(&self.config).map_err(|e| AdminError::Home(e.to_string()))?;
        match timeout(PATIENCE, client.cluster(cluster.clone())).await {
            Ok(Err(QueryError::Contract {
                code: Some(Code::UnknownCluster),
                ..
            })) => {
                let what = format!("the chain has no cluster {cluster}, and chain.clusters does not name it");
                Err(AdminError::field(Code::UnknownCluster, "cluster_id", what))
            }
            Ok(Ok(_)) => Ok(()),
            unheard => {
                let error =
                    unheard.map_or_else(|_| "no answer in 3 s".to_owned(), |e| format!("{:?}", e.err()));
                tracing::warn!(%cluster, error, "a token for a cluster of which the chain did not say whether it has it");
                Ok(())
            }
        }
    }
}
