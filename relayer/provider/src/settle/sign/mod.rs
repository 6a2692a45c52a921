//! Plans a transaction finally, simulates it once where the node does that, signs it.

pub(super) mod bound;
mod prune;
mod registrations;
mod reports;
mod sweep;
mod upkeep;

use std::num::NonZeroU64;

use hpc_chain::code::{Class, Verdict};
use hpc_chain::gas::Adjustment;
use hpc_chain::keys::{KeyError, Signer};
use hpc_chain::msg::Any;
use hpc_chain::query::QueryError;
use hpc_chain::rpc::RpcError;
use hpc_chain::settle::{BatchId, Input, SignRequest, SignedTx};
use hpc_chain::tx::{Fee, SignerData, Unsigned, sign_with, simulation_bytes};
use hpc_schema::registry::ExecuteMsg;

use bound::{Bound, Content};

use super::compose::ComposeError;
use super::driver::{BACKOFF_MS, Driver, DriverError};
use super::fit::Load;
use super::store::{self, Kind, SignedRow};
use crate::store::StoreError;
use crate::{clock, fault};

/// Messages ready to be signed.
struct Composed {
    messages: Vec<Any>,
    content: Content,
    /// What its gas depends on.
    load: Load,
    /// Simulated gas, or fitted.
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

impl SignError {
    /// What a simulation says about the transaction itself: as it is it will not be taken, a smaller or another one may be.
    /// `None` where the chain could not be asked, or time or an operator has to mend something first.
    fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Query(QueryError::Contract { .. }) => Some(Verdict::ContractError),
            Self::Query(QueryError::Rpc(RpcError::RequestTooLarge { .. })) => Some(Verdict::TxTooLarge),
            Self::Query(QueryError::Refused { verdict, .. }) if verdict.class() == Some(Class::Rejected) => {
                Some(verdict.clone())
            }
            Self::Query(_) | Self::Compose(_) | Self::Other(_) => None,
        }
    }
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
            Some(Kind::Prune) => self.compose_prune(request).await,
            None => Ok(None),
        };
        let signed = match composed {
            Ok(Some(composed)) => {
                self.load = Some((request.batch, composed.load));
                self.seal(request, composed).await.map(Some)
            }
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
                if let SignError::Query(QueryError::Refused { verdict, log, .. }) = &e {
                    match verdict {
                        Verdict::InsufficientFunds => self.no_funds(log),
                        Verdict::FeeGrant => self.no_grant(log),
                        Verdict::Other => self.not_taken(log),
                        _ => {}
                    }
                }
                tracing::warn!(batch = request.batch.0, error = %e, "nothing is signed now");
                self.backoff_until = clock::steady().after(BACKOFF_MS);
                self.withdraw(request.batch).await
            }
        }
    }

    /// Nothing is signed: what was planned for it is free.
    pub(super) async fn withdraw(&mut self, batch: BatchId) -> Result<Input, DriverError> {
        self.claims.release(&self.signers.name);
        let mut tx = self.store.begin().await?;
        store::drop_unsigned(&mut tx, &self.signers.name, Some(batch)).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(Input::Withdrawn { batch })
    }

    async fn seal(&self, request: SignRequest, composed: Composed) -> Result<(Bound, Vec<u8>), SignError> {
        let Composed {
            messages,
            content,
            load: _,
            gas,
            margin,
            adjustment,
        } = composed;
        let gas_limit = adjustment.apply(gas).saturating_add(margin);
        let fee = self.fee(gas_limit, gas_limit)?;
        let unsigned = self.unsigned(request, messages, fee)?;
        let signer = SignerData {
            chain_id: self.registry.chain_id(),
            account_number: request.account_number,
            sequence: request.sequence,
        };
        let signed = sign_with(self.key()?, signer, &unsigned).await;
        let signed = signed.map_err(|e| self.key_fails(&self.signers.name, e))?;
        self.health.clear_of("key_unusable", &self.signers.name);
        let row = SignedRow {
            hash: signed.hash,
            sequence: request.sequence,
            timeout_height: request.timeout_height,
            gas_limit,
        };
        let bound = Bound {
            batch: request.batch,
            row,
            content,
        };
        Ok((bound, signed.bytes))
    }

    fn key(&self) -> Result<&dyn Signer, SignError> {
        let key = self.signers.relayer.as_deref();
        key.ok_or_else(|| SignError::Other(format!("key {} is used no more", self.signers.name)))
    }

    /// A key does not sign: what was to be signed waits, and is tried again.
    fn key_fails(&self, name: &str, e: KeyError) -> ComposeError {
        if let KeyError::Hsm(e) = &e {
            self.health
                .raise_of("key_unusable", name, format!("key {name}: {e}"));
        }
        e.into()
    }

    /// A fee that pays for `paid` gas: ceil(gas × price), in integers.
    fn fee(&self, paid: u64, gas_limit: u64) -> Result<Fee, SignError> {
        let price = self.sizing.price();
        let amount = price.fee(paid).map_err(|e| SignError::Other(e.to_string()))?;
        Ok(Fee {
            amount: amount.into_iter().collect(),
            gas_limit,
            granter: self.signers.granter.clone(),
        })
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

    /// The gas of these messages: what a simulation shows or, where the node has none, the fit.
    async fn gas(&mut self, request: SignRequest, messages: Vec<Any>, load: Load) -> Result<u64, SignError> {
        match self.simulate(request, messages).await {
            Ok(used) => {
                self.simulates();
                self.measured(load, used);
                Ok(used)
            }
            Err(SignError::Query(QueryError::NoSimulation)) => {
                self.simulates_nothing();
                Ok(self.fit.most(load))
            }
            Err(e) => {
                // What is refused by it has been simulated.
                if let SignError::Query(QueryError::Contract { .. } | QueryError::Refused { .. }) = &e {
                    self.simulates();
                }
                Err(e)
            }
        }
    }

    async fn simulate(&self, request: SignRequest, messages: Vec<Any>) -> Result<u64, SignError> {
        // Paying costs gas itself; what is paid does not matter for that.
        let fee = self.fee(1, 0)?;
        let unsigned = self.unsigned(request, messages, fee)?;
        let bytes = simulation_bytes(self.key()?, request.sequence, &unsigned);
        Ok(self.client.chain().simulate(bytes).await?)
    }

    fn message(&self, message: &ExecuteMsg) -> Result<Any, ComposeError> {
        Ok(self.client.execute(&self.signers.address, message, &[])?)
    }
}

/// Bytes of messages: what a transaction has beside them does not matter for its size.
fn size(messages: &[Any]) -> u64 {
    let bytes: usize = messages.iter().map(|m| m.value.len()).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
