use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hpc_chain::proof::{Evidence, Trust, gather, verify};
use hpc_chain::registry::RegistryClient;
use tokio::sync::watch;
use tokio::time::sleep;

use super::rows::{self, Sample};
use crate::clock;
use crate::db::Row;
use crate::store::{Store, StoreError};

/// Transactions looked at in one turn.
const AT_ONCE: u32 = 8;
/// Pause between turns.
const EVERY: Duration = Duration::from_secs(2);
/// Pause before the same is asked for again.
const AGAIN_MS: u64 = 10_000;
/// The same where no heartbeat can be read: said no more often, and taken up by a newer version.
const UNREADABLE_AGAIN_MS: u64 = 3_600_000;

/// Endpoints whose evidence did not hold, so that it is said once of each.
type Refused = Mutex<HashSet<String>>;

/// Gathers the evidence of transactions that have brought reports on chain, until `stop`. It is checked as whoever is given
/// the proof will check it; what an endpoint does not give now is asked for again, until the heartbeats are forgotten.
pub async fn collect(client: RegistryClient, store: Store, mut stop: watch::Receiver<bool>) {
    let refused = Refused::default();
    loop {
        let turn = async {
            if let Err(e) = turn(&client, &store, &refused).await {
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

async fn turn(client: &RegistryClient, store: &Store, refused: &Refused) -> Result<(), StoreError> {
    let before = clock::now_ms().saturating_sub(AGAIN_MS);
    for hash in rows::open(store.reader(), before, AT_ONCE).await? {
        let mut asked_at = clock::now_ms();
        let given = match rows::sample(store.reader(), hash).await? {
            // What nothing is kept of is pruned.
            Sample::Gone => continue,
            // No endpoint's fault, and none can help.
            Sample::Unreadable => {
                asked_at = asked_at.saturating_add(UNREADABLE_AGAIN_MS);
                tracing::warn!(tx = %hash, "none of the heartbeats kept of a transaction can be read, and nothing is proven of them; a backup of the store may hold them");
                None
            }
            Sample::Kept(sample) => {
                let holds = |endpoint: &str, evidence: &Evidence| holds(&sample, endpoint, evidence, refused);
                let height = rows::height(store.reader(), hash).await?;
                match gather(client.chain().endpoints(), hash, height, holds).await {
                    Ok(evidence) => Some(evidence),
                    Err(e) => {
                        tracing::debug!(tx = %hash, error = %e, "a proof cannot be gathered yet");
                        None
                    }
                }
            }
        };
        let mut tx = store.begin().await?;
        rows::store(&mut tx, hash, given.as_ref(), asked_at).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Whether evidence proves what it is to prove.
fn holds(sample: &Row, endpoint: &str, evidence: &Evidence, refused: &Refused) -> bool {
    let proof = rows::put_together(sample, evidence).map_err(|e| e.to_string());
    let checked = proof.and_then(|p| verify(&p, &Trust::default()).map_err(|e| e.to_string()));
    let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
    match checked {
        Ok(_) => {
            if refused.remove(endpoint) {
                tracing::info!(endpoint, "an endpoint of chain.rpc gives proofs that hold again");
            }
            true
        }
        Err(error) => {
            if refused.insert(endpoint.to_owned()) {
                tracing::warn!(
                    endpoint,
                    error,
                    "an endpoint of chain.rpc gave a proof that does not hold; it is refused, and the next endpoint is asked"
                );
            }
            false
        }
    }
}
