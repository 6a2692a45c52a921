use super::client::Client;
use super::error::{RpcError, reason};
use super::types::ExecResult;
use crate::code;

impl Client {
    /// The results of a block's transactions, in their order; of a node without them it is told whether it will have them
    /// (again).
    ///
    /// # Errors
    /// [`RpcError::NotKept`] if it will not; else as [`Self::block_results`].
    pub async fn kept_results(&self, height: u64) -> Result<Vec<ExecResult>, RpcError> {
        let error = match self.block_results(height).await {
            Err(error) => error,
            answer => return answer,
        };
        let RpcError::Response { message, data, .. } = &error else {
            return Err(error);
        };
        let reason = reason(message.clone(), data.clone());
        let gone = code::is_not_kept(&reason)
            || (code::is_results_absent(&reason) && self.status().await.is_ok_and(|s| s.height > height));
        if gone {
            return Err(RpcError::NotKept {
                endpoint: self.name().to_owned(),
                what: "the results of this block",
                reason,
            });
        }
        Err(error)
    }
}
