use hpc_chain::gas::Adjustment;
use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::bound::Content;
use super::{Composed, SignError};

/// Nodes that one prune removes.
const PRUNE_NODES: u32 = 32;

impl Driver {
    pub(super) async fn compose_prune(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        // Another gateway may have done it since.
        if !self.prune_due().await.map_err(ComposeError::from)? {
            return Ok(None);
        }
        let messages = vec![self.message(&ExecuteMsg::Prune {
            limit: Some(PRUNE_NODES),
        })?];
        let gas = self.simulate(request, messages.clone()).await?;
        Ok(Some(Composed {
            messages,
            content: Content::Sweep,
            gas,
            margin: 0,
            adjustment: self.sizing.adjustment(Adjustment::default()),
        }))
    }
}
