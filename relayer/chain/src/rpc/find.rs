use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Client;
use super::endpoints::Endpoints;
use super::error::RpcError;
use super::types::TxAnswer;
use crate::hash::TxHash;

impl Endpoints {
    /// A transaction by its hash, from the first endpoint whose index has it: an index may be behind the blocks of its node, so
    /// that one which lacks it says nothing for the others. `None` if none that answers has it. Up to a request for each.
    ///
    /// # Errors
    /// As [`Self::ask`], where no endpoint says whether it has it.
    pub async fn find_tx(&self, hash: TxHash) -> Result<Option<TxAnswer>, RpcError> {
        let lacked = &AtomicBool::new(false);
        let found = self
            .ask(|c: Client| async move {
                if let Some(tx) = c.tx(hash).await? {
                    return Ok(tx);
                }
                lacked.store(true, Ordering::Relaxed);
                // No failure, and the next one is asked.
                Err(RpcError::Behind {
                    endpoint: c.name().to_owned(),
                    height: 0,
                    wanted: 0,
                })
            })
            .await;
        match found {
            Ok(tx) => Ok(Some(tx)),
            Err(_) if lacked.load(Ordering::Relaxed) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
