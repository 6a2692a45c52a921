use super::client::Client;
use super::error::{RpcError, reason};
use super::types::ExecResult;
use crate::code;

/// Why a node gave no results of a block.
#[derive(Debug)]
pub(crate) struct NoResults {
    /// [`RpcError::NotKept`] if it will not have them (again).
    pub(crate) error: RpcError,
    /// Its newest block, where it was asked for it and told.
    pub(crate) newest: Option<u64>,
}

impl Client {
    /// The results of a block's transactions, in their order; of a node without them it is told whether it will have them
    /// (again).
    ///
    /// # Errors
    /// [`RpcError::NotKept`] if it will not; else as [`Self::block_results`].
    pub async fn kept_results(&self, height: u64) -> Result<Vec<ExecResult>, RpcError> {
        self.results_at(height).await.map_err(|none| none.error)
    }

    /// The same, with what else was learnt of a node without them.
    pub(crate) async fn results_at(&self, height: u64) -> Result<Vec<ExecResult>, NoResults> {
        let error = match self.block_results(height).await {
            Err(error) => error,
            Ok(results) => return Ok(results),
        };
        let mut newest = None;
        let RpcError::Response { message, data, .. } = &error else {
            return Err(NoResults { error, newest });
        };
        let reason = reason(message.clone(), data.clone());
        if code::is_results_absent(&reason) {
            newest = self.status().await.ok().map(|s| s.height);
        }
        if code::is_not_kept(&reason) || newest.is_some_and(|newest| newest > height) {
            let error = RpcError::NotKept {
                endpoint: self.name().to_owned(),
                what: "the results of this block",
                reason,
                unheard: Vec::new(),
            };
            return Err(NoResults { error, newest });
        }
        Err(NoResults { error, newest })
    }
}
