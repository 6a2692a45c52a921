//! Carries out what the machine asks for.

use std::collections::VecDeque;

use hpc_chain::settle::io::perform;
use hpc_chain::settle::{Action, BatchId, End, Input, step};

use super::super::store;
use super::{Driver, DriverError};
use crate::store::StoreError;
use crate::{clock, fault};

impl Driver {
    /// Steps the machine and does what it says; what comes of that is fed in turn.
    pub(in crate::settle) async fn feed(&mut self, input: Input) -> Result<(), DriverError> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if matches!(&input, Input::Found(i) if i.code == 0) {
                fault::point("settle.found");
            }
            let unsigned = matches!(&input, Input::Signed(_)).then(|| self.state.clone());
            let actions = step(&mut self.state, &self.machine, clock::now_ms(), input);
            for action in actions {
                let Some(batch) = self.act(action, &mut inputs).await? else {
                    continue;
                };
                // As if it had been seen before it was signed: nothing of it is stored, and nothing was sent.
                if let Some(unsigned) = unsigned {
                    self.state = unsigned;
                }
                inputs.push_back(self.withdraw(batch).await?);
                break;
            }
        }
        Ok(())
    }

    /// Says which batch was called back, if that kept it from being stored.
    async fn act(
        &mut self,
        action: Action,
        inputs: &mut VecDeque<Input>,
    ) -> Result<Option<BatchId>, DriverError> {
        match action {
            Action::Persist => return self.persist().await,
            Action::Sign(request) => inputs.push_back(Box::pin(self.sign(request)).await?),
            Action::Broadcast { .. } => {
                fault::point("settle.broadcasting");
                inputs.extend(self.ask(&action).await);
                fault::point("settle.broadcast");
            }
            Action::QueryTx { .. } | Action::QueryAccount | Action::ScanBlocks { .. } => {
                inputs.extend(self.ask(&action).await);
            }
            Action::QueryNodeSequences {
                batch,
                height,
                overtaken,
            } => self.ending = Some((batch, End::Consumed { height, overtaken })),
            Action::Finished { batch, end } => {
                fault::point("settle.ended");
                self.ending = Some((batch, end));
            }
            Action::Busy { batch } => tracing::error!(batch = batch.0, "the settlement machine was busy"),
            Action::Alarm(alarm) => self.alarm(&alarm),
        }
        Ok(None)
    }

    async fn ask(&self, question: &Action) -> Vec<Input> {
        let answers = perform(self.client.chain(), &self.signers.address, &self.state, question).await;
        for answer in &answers {
            self.tell(answer);
        }
        answers
    }

    /// Stores the state; with a fresh transaction also what is in it, in the same commit. If something of that was called back
    /// while it was signed nothing is stored, and it says so of which batch.
    async fn persist(&mut self) -> Result<Option<BatchId>, DriverError> {
        let now = clock::now_ms();
        let mut tx = self.store.begin().await?;
        let bound = self
            .bound
            .take()
            .filter(|b| self.state.outstanding().is_some_and(|o| o.hash == b.row.hash));
        if let Some(bound) = &bound
            && !bound.write(&mut tx, now).await?
        {
            tx.rollback().await.map_err(StoreError::from)?;
            return Ok(Some(bound.batch));
        }
        let learnt = self.sizing.learnt();
        store::save_state(&mut tx, self.signers.account(), &self.state, learnt.as_ref(), now).await?;
        fault::point("settle.persisting");
        tx.commit().await.map_err(StoreError::from)?;
        if let Some(bound) = bound {
            self.refusal = None;
            self.metrics.signed.inc();
            tracing::info!(batch = bound.batch.0, signer = self.signers.name, tx = %bound.row.hash, sequence = bound.row.sequence,
                timeout_height = bound.row.timeout_height, gas = bound.row.gas_limit, items = bound.items(), "transaction signed");
        }
        fault::point("settle.persisted");
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use hpc_chain::code::Verdict;

    use super::super::tests::{driver, priced};
    use super::store;

    #[tokio::test]
    async fn a_price_that_was_learnt_outlasts_the_driver() {
        let dir = tempfile::tempdir().unwrap();
        let priced = async |ceiling: &str| priced(dir.path(), "0.01stake", ceiling).await;
        let mut before = priced("0.1stake").await;
        before.sizing.asks("0.04stake".parse().unwrap());
        before.sizing.refused(&Verdict::InsufficientFee, 1);
        before.sizing.paid(7);
        before.persist().await.unwrap();
        let shown = store::learnt_prices(before.store.reader()).await.unwrap();
        assert_eq!(shown["relayer"].to_string(), "0.04stake");
        let state = before.state.clone();
        drop(before);
        let after = priced("0.1stake").await;
        assert_eq!(after.sizing.price().to_string(), "0.04stake");
        let since = after.sizing.learnt().unwrap().since;
        assert_eq!(since, Some(7), "its day goes on");
        assert_eq!(after.state, state);
        // As far as it is allowed now.
        assert_eq!(priced("0.02stake").await.sizing.price().to_string(), "0.02stake");
        assert_eq!(driver(dir.path()).await.sizing.price().to_string(), "0stake");
    }
}
