use hpc_chain::query::QueryError;
use hpc_chain::settle::SignRequest;
use hpc_schema::code::Code;

use super::super::apart::may_be_its_fault;
use super::super::compose::{self, ComposeError};
use super::super::driver::{Driver, FRESH_MS};
use super::super::sizing::usual_for_reports;
use super::bound::Content;
use super::{Composed, SignError, size};
use crate::clock;
use crate::spool::{self, Member};
use crate::store::StoreError;

impl Driver {
    pub(super) async fn compose_reports(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        let now = clock::now_ms();
        let looked = self.looked.take().filter(|(at, _)| now.abs_diff(*at) <= FRESH_MS);
        let Some(reports) = compose::reports(self, looked.map(|(_, waits)| waits), now).await? else {
            return Ok(None);
        };
        let messages = vec![reports.message];
        let load = reports.load;
        let refused = match self.gas(request, messages.clone(), load).await {
            Ok(gas) => {
                return Ok(Some(Composed {
                    messages,
                    content: Content::Reports(reports.members),
                    load,
                    gas,
                    margin: reports.margin,
                    adjustment: self.sizing.adjustment(usual_for_reports()),
                }));
            }
            Err(e) => e,
        };
        let Some(verdict) = refused.verdict() else {
            return Err(refused);
        };
        // The whole message is refused: smaller ones find out whose fault it is.
        self.sizing.refused(&verdict, size(&messages));
        match (reports.members.as_slice(), &refused) {
            ([alone], SignError::Query(QueryError::Contract { code, message })) => {
                let code = code.unwrap_or(Code::Malformed);
                tracing::warn!(node = %alone.node_id, %code, "report refused: {message}");
                self.refuse_alone(alone, code, now).await?;
                self.sizing.isolated();
                Ok(None)
            }
            ([alone], _) => {
                if !may_be_its_fault(&verdict) || !self.put_apart(alone, &refused.to_string()) {
                    return Err(refused);
                }
                self.sizing.isolated();
                Ok(None)
            }
            (many, _) => {
                tracing::info!(
                    reports = many.len(),
                    "a batch is refused as it is, the next is smaller: {refused}"
                );
                Ok(None)
            }
        }
    }

    async fn refuse_alone(&self, m: &Member, code: Code, now_ms: u64) -> Result<(), ComposeError> {
        let mut tx = self.store.begin().await?;
        let end = spool::End::local(spool::EndedAs::Refused, Some(code));
        spool::drop_waiting(&mut tx, &m.cluster_id, &m.node_id, m.sequence, &end, now_ms).await?;
        tx.commit().await.map_err(StoreError::from)?;
        self.registry.refused(&m.cluster_id, &m.node_id, code, m.sequence);
        Ok(())
    }
}
