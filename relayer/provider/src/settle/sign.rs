use std::collections::BTreeSet;
use std::num::NonZeroU64;

use hpc_chain::code::Verdict;
use hpc_chain::gas::Adjustment;
use hpc_chain::msg::Any;
use hpc_chain::query::QueryError;
use hpc_chain::settle::{BatchId, Input, SignRequest, SignedTx};
use hpc_chain::tx::{Fee, SignerData, Unsigned, sign, simulation_bytes};
use hpc_schema::code::Code;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::time::UnixSeconds;
use sqlx::SqliteConnection;

use super::compose::{self, ComposeError};
use super::driver::{Driver, DriverError};
use super::store::{self, Kind, SignedRow};
use crate::enrol;
use crate::registry::{SyncError, sync_cluster};
use crate::spool::{self, Member};
use crate::store::StoreError;
use crate::{clock, fault};

/// Registrations in one transaction.
const REGISTRATIONS: u32 = 16;
/// Pages that one sweep visits.
const SWEEP_PAGES: u32 = 64;
const BACKOFF_MS: u64 = 3_000;

/// A signed transaction and what is in it, until both are stored.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) batch: BatchId,
    pub(super) row: SignedRow,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Reports(Vec<Member>),
    Register(Vec<u64>),
    Sweep,
}

impl Bound {
    pub(super) async fn write(&self, conn: &mut SqliteConnection, now_ms: u64) -> Result<(), StoreError> {
        store::record_signed(&mut *conn, self.batch, &self.row).await?;
        match &self.content {
            Content::Reports(members) => spool::bind(conn, self.batch.0, members).await,
            Content::Register(ids) => enrol::bind_to_batch(conn, self.batch.0, ids, now_ms).await,
            Content::Sweep => Ok(()),
        }
    }

    pub(super) fn items(&self) -> usize {
        match &self.content {
            Content::Reports(members) => members.len(),
            Content::Register(ids) => ids.len(),
            Content::Sweep => 0,
        }
    }
}

/// Messages ready to be signed.
struct Composed {
    messages: Vec<Any>,
    content: Content,
    /// Simulated gas.
    gas: u64,
    margin: u64,
    adjustment: Adjustment,
}

/// Why nothing is signed now.
#[derive(Debug, thiserror::Error)]
enum SignError {
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("{0}")]
    Other(String),
}

impl Driver {
    /// Plans the batch finally, simulates it once, signs it.
    pub(super) async fn sign(&mut self, request: SignRequest) -> Result<Input, DriverError> {
        fault::point("settle.planned");
        let kind = self
            .job
            .as_ref()
            .filter(|(batch, ..)| *batch == request.batch)
            .map(|(_, kind, _)| *kind);
        let composed = match kind {
            Some(Kind::Reports) => self.compose_reports(request).await,
            Some(Kind::Register) => self.compose_registrations(request).await,
            Some(Kind::Sweep) => self.compose_sweep(request).await,
            None => Ok(None),
        };
        let signed = match composed {
            Ok(Some(composed)) => self.seal(request, composed).map(Some),
            Ok(None) => Ok(None),
            Err(e) => Err(e),
        };
        match signed {
            Ok(Some((bound, bytes))) => {
                self.bound = Some(bound);
                fault::point("settle.signed");
                Ok(Input::Signed(SignedTx { request, bytes }))
            }
            Ok(None) => self.withdraw(request.batch).await,
            Err(SignError::Compose(ComposeError::Store(e))) => Err(e.into()),
            Err(e) => {
                tracing::warn!(batch = request.batch.0, error = %e, "nothing is signed now");
                self.backoff_until = clock::now_ms() + BACKOFF_MS;
                self.withdraw(request.batch).await
            }
        }
    }

    async fn withdraw(&mut self, batch: BatchId) -> Result<Input, DriverError> {
        let mut tx = self.store.begin().await?;
        store::drop_unsigned(&mut tx, &self.signers.name, Some(batch)).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(Input::Withdrawn { batch })
    }

    fn seal(&self, request: SignRequest, composed: Composed) -> Result<(Bound, Vec<u8>), SignError> {
        let Composed {
            messages,
            content,
            gas,
            margin,
            adjustment,
        } = composed;
        let gas_limit = adjustment.apply(gas).saturating_add(margin);
        let amount = self
            .price
            .fee(gas_limit)
            .map_err(|e| SignError::Other(e.to_string()))?;
        let unsigned = self.unsigned(
            request,
            messages,
            Fee {
                amount: amount.into_iter().collect(),
                gas_limit,
            },
        )?;
        let signer = SignerData {
            chain_id: self.registry.chain_id(),
            account_number: request.account_number,
            sequence: request.sequence,
        };
        let signed = sign(&self.signers.relayer, signer, &unsigned).map_err(ComposeError::from)?;
        let row = SignedRow {
            hash: signed.hash,
            sequence: request.sequence,
            timeout_height: request.timeout_height,
            gas_limit,
        };
        Ok((
            Bound {
                batch: request.batch,
                row,
                content,
            },
            signed.bytes,
        ))
    }

    fn unsigned(&self, request: SignRequest, messages: Vec<Any>, fee: Fee) -> Result<Unsigned, SignError> {
        let timeout_height = NonZeroU64::new(request.timeout_height)
            .ok_or_else(|| SignError::Other("a transaction without timeout height is never signed".into()))?;
        Ok(Unsigned {
            messages,
            memo: String::new(),
            timeout_height,
            fee,
        })
    }

    async fn simulate(&self, request: SignRequest, messages: Vec<Any>) -> Result<u64, SignError> {
        // Paying costs gas itself; what is paid does not matter for that.
        let amount = self.price.fee(1).map_err(|e| SignError::Other(e.to_string()))?;
        let fee = Fee {
            amount: amount.into_iter().collect(),
            gas_limit: 0,
        };
        let unsigned = self.unsigned(request, messages, fee)?;
        let bytes = simulation_bytes(&self.signers.relayer, request.sequence, &unsigned);
        Ok(self.client.chain().simulate(bytes).await?)
    }

    async fn compose_reports(&mut self, request: SignRequest) -> Result<Option<Composed>, SignError> {
        let now = clock::now_ms();
        let limits = self.limits();
        let sender = &self.signers.address;
        let made = compose::reports(&self.store, &self.registry, &self.client, sender, &limits, now).await?;
        let Some(reports) = made else { return Ok(None) };
        let messages = vec![reports.message];
        match self.simulate(request, messages.clone()).await {
            Ok(gas) => Ok(Some(Composed {
                messages,
                content: Content::Reports(reports.members),
                gas,
                margin: reports.margin,
                adjustment: self.gas_adjustment(),
            })),
            Err(SignError::Query(QueryError::Contract { code, message })) => {
                // The contract refuses the whole message: smaller ones find out whose fault it is.
                self.shrink = (self.shrink + 1).min(10);
                if let [alone] = reports.members.as_slice() {
                    let code = code.unwrap_or(Code::Malformed);
                    tracing::warn!(node = %alone.node_id, %code, "report refused: {message}");
                    self.refuse_alone(alone, code, now).await?;
                    self.shrink = 0;
                }
                Ok(None)
            }
            Err(SignError::Query(QueryError::Refused {
                verdict: Verdict::OutOfGas,
                ..
            })) => {
                self.shrink = (self.shrink + 1).min(10);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// The fitted gas times 1.1; more after a transaction ran out of it.
    fn gas_adjustment(&self) -> Adjustment {
        if self.adjustment == Adjustment::default() {
            "1.1".parse().unwrap_or_default()
        } else {
            self.adjustment
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

    async fn compose_registrations(&mut self, request: SignRequest) -> Result<Option<Composed>, SignError> {
        let now = clock::now_ms();
        let limit = (REGISTRATIONS >> self.shrink.min(31)).max(1);
        let mut conn = self
            .store
            .reader()
            .acquire()
            .await
            .map_err(|e| ComposeError::Store(e.into()))?;
        let queued = enrol::queued(&mut conn, limit)
            .await
            .map_err(ComposeError::from)?;
        drop(conn);
        let clusters: BTreeSet<_> = queued.iter().map(|r| r.cluster_id.clone()).collect();
        for cluster in clusters {
            // It may have been created, or its operators changed, since the last sync.
            match sync_cluster(&self.client, &self.store, &self.registry, &cluster).await {
                Ok(_) => {}
                Err(SyncError::Query(e)) => return Err(e.into()),
                Err(SyncError::Store(e)) => return Err(ComposeError::from(e).into()),
            }
        }
        let mut good: Vec<(u64, Any)> = Vec::new();
        for r in &queued {
            let nonce = clock::random().map_err(ComposeError::from)?;
            let Self {
                registry, signers, ..
            } = &*self;
            let time = UnixSeconds(now / 1000);
            match compose::registration(r, registry, &signers.operator, &signers.prefix, time, nonce)? {
                Ok(message) => {
                    let any = self.message(&message)?;
                    good.push((r.id, any));
                }
                Err((code, detail)) => self.refuse_registration(r.id, code, &detail, now).await?,
            }
        }
        let messages = |good: &[(u64, Any)]| good.iter().map(|(_, any)| any.clone()).collect::<Vec<_>>();
        if good.is_empty() {
            return Ok(None);
        }
        let mut simulated = self.simulate(request, messages(&good)).await;
        if let Err(SignError::Query(QueryError::Contract { .. })) = simulated {
            // One of them is refused; each alone shows which.
            let mut sound = Vec::new();
            for (id, any) in good {
                match self.simulate(request, vec![any.clone()]).await {
                    Ok(_) => sound.push((id, any)),
                    Err(SignError::Query(QueryError::Contract { code, message })) => {
                        let code = code.unwrap_or(Code::NotAuthorized);
                        self.refuse_registration(id, code, &message, now).await?;
                    }
                    Err(e) => return Err(e),
                }
            }
            good = sound;
            if good.is_empty() {
                return Ok(None);
            }
            simulated = self.simulate(request, messages(&good)).await;
        }
        let gas = simulated?;
        let ids = good.iter().map(|(id, _)| *id).collect();
        Ok(Some(Composed {
            messages: messages(&good),
            content: Content::Register(ids),
            gas,
            margin: 0,
            adjustment: self.adjustment,
        }))
    }

    async fn refuse_registration(
        &self,
        id: u64,
        code: Code,
        detail: &str,
        now: u64,
    ) -> Result<(), ComposeError> {
        tracing::warn!(registration = id, %code, "registration refused: {detail}");
        let mut tx = self.store.begin().await?;
        enrol::record_refused(&mut tx, id, code, detail, now).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    async fn compose_sweep(&mut self, request: SignRequest) -> Result<Option<Composed>, SignError> {
        let Some((_, _, cluster_id @ Some(_))) = self.job.clone() else {
            return Ok(None);
        };
        let messages = vec![self.message(&ExecuteMsg::Sweep {
            cluster_id,
            limit: Some(SWEEP_PAGES),
        })?];
        let gas = self.simulate(request, messages.clone()).await?;
        Ok(Some(Composed {
            messages,
            content: Content::Sweep,
            gas,
            margin: 0,
            adjustment: self.adjustment,
        }))
    }

    fn message(&self, message: &ExecuteMsg) -> Result<Any, ComposeError> {
        Ok(self.client.execute(&self.signers.address, message, &[])?)
    }
}
