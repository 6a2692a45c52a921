//! Works off a proven end.

use hpc_chain::code::{self, Verdict};
use hpc_chain::settle::{BatchId, End, Input, step};

use super::super::apart::may_be_its_fault;
use super::super::ending::{self, Ending, EndingError, Fate, RegisterFate};
use super::super::fit::{self, Load};
use super::super::rota::Duty;
use super::super::store::{self, Kind};
use super::{BACKOFF_MS, Driver, DriverError};
use crate::ops::TxLabels;
use crate::registry::sync_nodes;
use crate::spool::EndedAs;
use crate::store::StoreError;
use crate::{clock, fault};

impl Driver {
    /// Works off a proven end; tried again at the next turn if the chain cannot be asked.
    pub(super) async fn finish(&mut self) -> Result<(), DriverError> {
        let Some((batch, end)) = self.ending.clone() else {
            return Ok(());
        };
        match self.settle(batch, &end).await {
            Ok(()) => {
                self.ending = None;
                self.claims.release(&self.signers.name);
                self.look_at = 0;
            }
            Err(EndingError::Query(e)) => {
                tracing::warn!(batch = batch.0, error = %e, "the outcomes of a transaction cannot be read yet");
            }
            Err(EndingError::Store(e)) => return Err(e.into()),
        }
        Ok(())
    }

    async fn settle(&mut self, batch: BatchId, end: &End) -> Result<(), EndingError> {
        let known = store::unended(self.store.reader(), batch).await?;
        let ending = match known {
            Some((Kind::Reports, hash)) => {
                ending::of_reports(&self.client, &self.store, batch, hash, end).await?
            }
            Some((Kind::Register, hash)) => {
                ending::of_registrations(&self.client, &self.store, batch, hash, end).await?
            }
            Some((Kind::Sweep | Kind::Prune, _)) | None => Ending::Nothing,
        };
        fault::point("settle.outcomes");
        let now = clock::now_ms();
        let size = self.state.outstanding().map_or(0, |o| o.bytes.len());
        let mut settled = self.state.clone();
        // The one action that may follow is to persist, which happens in the commit below.
        drop(step(&mut settled, &self.machine, now, Input::Settled { batch }));
        let height = match end {
            End::Included(i) | End::Failed(i) => Some(i.height),
            End::Expired { .. } | End::Consumed { .. } => None,
        };
        let mut tx = self.store.begin().await?;
        ending::write(&mut tx, batch, &ending, height, now).await?;
        store::record_end(&mut tx, batch, end, now).await?;
        store::save_state(&mut tx, self.signers.account(), &settled, now).await?;
        fault::point("settle.settling");
        tx.commit().await.map_err(StoreError::from)?;
        fault::point("settle.settled");
        self.state = settled;
        if let Some((stored, hash)) = known {
            // The store has one word for sweeps and prunes.
            let planned = self.job.as_ref().filter(|(of, ..)| *of == batch);
            let kind = planned.map_or(stored, |(_, kind, _)| *kind);
            self.after_reports(&ending, end);
            let duty = self.duty_of(batch);
            self.learn_gas(batch, end);
            let size = u64::try_from(size).unwrap_or(u64::MAX);
            self.after(kind, duty.as_ref(), (end, took(&ending)), size);
            let hash = hash.map(|h| h.to_string()).unwrap_or_default();
            tracing::info!(
                batch = batch.0,
                kind = kind.as_str(),
                tx = hash,
                end = store::end_word(end),
                "transaction ended"
            );
        }
        for (cluster, ids) in ending::announce(&ending, &self.registry, &self.metrics) {
            if let Err(e) = sync_nodes(&self.client, &self.store, &self.registry, &cluster, &ids, now).await {
                tracing::debug!(%cluster, error = %e, "nodes are read again at the next round");
            }
        }
        Ok(())
    }

    /// Reports that took effect need let nobody pass any more; one that was alone at fault does.
    fn after_reports(&mut self, ending: &Ending, end: &End) {
        let Ending::Reports(fates) = ending else { return };
        let refusal = match end {
            End::Included(_) | End::Consumed { .. } => {
                // Of one whose result nobody keeps, those that the contract has.
                let taken = |f: &Fate| matches!(end, End::Included(_)) || is_on_chain(f);
                for (m, _) in fates.iter().filter(|(_, fate)| taken(fate)) {
                    let node = (m.cluster_id.clone(), m.node_id.clone());
                    if self.apart.remove(&node) {
                        self.report_taken(&node);
                    }
                }
                if matches!(end, End::Included(_)) {
                    return;
                }
                Some(Verdict::OutOfGas)
            }
            End::Failed(i) => Some(code::of_abci(&i.codespace, i.code, &i.log)),
            End::Expired { .. } => self.refusal.clone(),
        };
        let ([(alone, Fate::Returned)], Some(verdict)) = (fates.as_slice(), refusal) else {
            return;
        };
        // Of gas it is given more first.
        let once_more = verdict == Verdict::OutOfGas && !self.sizing.is_short_of_gas();
        if may_be_its_fault(&verdict) && !once_more {
            self.put_apart(alone, verdict.remedy());
        }
    }

    /// What the end says about the gas of the next transaction.
    fn learn_gas(&mut self, batch: BatchId, end: &End) {
        let Some((_, load)) = self.load.take_if(|(of, _)| *of == batch) else {
            return;
        };
        let used = match end {
            End::Included(i) => i.gas_used,
            // At least so much.
            End::Failed(i) if code::of_abci(&i.codespace, i.code, &i.log) == Verdict::OutOfGas => i.gas_used,
            End::Failed(_) | End::Expired { .. } | End::Consumed { .. } => 0,
        };
        if used > 0 {
            self.measured(load, used);
        }
    }

    /// A simulation, or a block, has shown what a transaction takes.
    pub(in crate::settle) fn measured(&mut self, load: Load, used: u64) {
        let fitted = self.fit.gas(load);
        if fit::is_off(fitted, used) {
            tracing::debug!(
                ?load,
                fitted,
                used,
                "the fitted gas was off by more than a quarter"
            );
        }
        self.fit.learn(load, used);
    }

    /// What the end says about the next transaction, and that something of it is on chain.
    fn after(&mut self, kind: Kind, duty: Option<&Duty>, (end, took): (&End, bool), bytes: u64) {
        let labels = TxLabels {
            kind: kind.as_str(),
            end: store::end_word(end),
        };
        self.metrics.transactions.get_or_create(&labels).inc();
        match end {
            End::Included(_) => {
                match duty {
                    Some(duty) => {
                        self.rota.taken(duty);
                        self.duty_taken(duty);
                    }
                    None => self.sizing.included(bytes),
                }
                self.clear_alarms();
            }
            End::Failed(i) => {
                let verdict = code::of_abci(&i.codespace, i.code, &i.log);
                tracing::warn!(code = i.code, codespace = %i.codespace, "transaction failed: {}; {}", i.log, verdict.remedy());
                self.refused(duty, &verdict, bytes);
                self.backoff_until = clock::now_ms() + BACKOFF_MS;
            }
            // No endpoint took it: the next one must be another.
            End::Expired { .. } => {
                if let Some(verdict) = self.refusal.take() {
                    self.refused(duty, &verdict, bytes);
                }
            }
            End::Consumed { .. } if duty.is_some() => self.backoff_until = clock::now_ms() + BACKOFF_MS,
            End::Consumed { .. } if took => {
                self.sizing.included(bytes);
                self.clear_alarms();
            }
            // Another one had the number, or it failed and nobody keeps why: it may have had too little gas, and is not to be
            // paid for again at once.
            End::Consumed { .. } => {
                self.sizing.refused(&Verdict::OutOfGas, bytes);
                self.backoff_until = clock::now_ms() + BACKOFF_MS;
            }
        }
    }

    /// What a duty is refused with says nothing about the size of others.
    fn refused(&mut self, duty: Option<&Duty>, verdict: &Verdict, bytes: u64) {
        match duty {
            // What is paid for gas is the same whatever it is for.
            Some(duty) if *verdict != Verdict::InsufficientFee => self.duty_refused(duty, verdict, bytes),
            _ => self.sizing.refused(verdict, bytes),
        }
    }
}

/// Whether something of a transaction is on chain, by what the contract has.
fn took(ending: &Ending) -> bool {
    match ending {
        Ending::Reports(fates) => fates.iter().any(|(_, fate)| is_on_chain(fate)),
        Ending::Register(fates) => fates
            .iter()
            .any(|(_, fate)| matches!(fate, RegisterFate::OnChain(_))),
        Ending::Nothing => false,
    }
}

fn is_on_chain(fate: &Fate) -> bool {
    matches!(fate, Fate::Ended(EndedAs::OnChain, _))
}
