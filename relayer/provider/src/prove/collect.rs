use std::time::Duration;

use hpc_chain::proof::gather;
use hpc_chain::registry::RegistryClient;
use tokio::sync::watch;
use tokio::time::sleep;

use super::rows;
use crate::clock;
use crate::store::{Store, StoreError};

/// Transactions looked at in one turn.
const AT_ONCE: u32 = 8;
/// Pause between turns.
const EVERY: Duration = Duration::from_secs(2);
/// Pause before the same is asked for again.
const AGAIN_MS: u64 = 10_000;

/// Gathers the evidence of transactions that have brought reports on chain, until `stop`. What an endpoint does not give now
/// is asked for again, until the heartbeats are forgotten.
pub async fn collect(client: RegistryClient, store: Store, mut stop: watch::Receiver<bool>) {
    loop {
        let turn = async {
            if let Err(e) = turn(&client, &store).await {
                tracing::debug!(error = %e, "proofs cannot be kept");
            }
            sleep(EVERY).await;
        };
        tokio::select! {
            () = turn => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn turn(client: &RegistryClient, store: &Store) -> Result<(), StoreError> {
    let before = clock::now_ms().saturating_sub(AGAIN_MS);
    for hash in rows::open(store.reader(), before, AT_ONCE).await? {
        let given = gather(client.chain().endpoints(), hash).await;
        if let Err(e) = &given {
            tracing::debug!(tx = %hash, error = %e, "a proof cannot be gathered yet");
        }
        let mut tx = store.begin().await?;
        rows::store(&mut tx, hash, given.as_ref().ok(), clock::now_ms()).await?;
        tx.commit().await?;
    }
    Ok(())
}
