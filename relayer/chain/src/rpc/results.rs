use super::client::Client;
use super::error::{RpcError, reason};
use super::types::{Block, ExecResult};
use crate::code;

/// Why a node gave no results of a block.
#[derive(Debug)]
pub(crate) struct NoResults {
    /// [`RpcError::NotKept`] if it will not have them (again).
    pub(crate) error: RpcError,
    /// Its newest block, where it was asked for it; 0 if it has none yet or did not say.
    pub(crate) newest: Option<u64>,
}

impl Client {
    /// A block; a node that has pruned it is told from one that does not have it yet.
    ///
    /// # Errors
    /// [`RpcError::NotKept`] if it was pruned; else as [`Self::block`].
    pub async fn kept_block(&self, height: u64) -> Result<Block, RpcError> {
        match self.block(Some(height)).await {
            Err(RpcError::Response {
                endpoint,
                message,
                data,
                ..
            }) if code::pruned_below(&data).is_some_and(|lowest| lowest > height) => Err(RpcError::NotKept {
                endpoint,
                what: "this block",
                reason: reason(message, data),
                unheard: Vec::new(),
            }),
            other => other,
        }
    }

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
            newest = Some(self.status().await.map_or(0, |s| s.height));
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
