use hpc_chain::code::Verdict;
use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::apart::may_be_its_fault;
use super::super::driver::Driver;
use super::super::fit::Load;
use super::super::rota::Duty;
use super::bound::Content;
use super::{Composed, SignError};
use crate::clock;

impl Driver {
    /// The message of a duty, alone in its transaction: about as many of `most` pages or nodes as `batch.max_gas` and the
    /// chain's own limit suffice for; `carries` says what so many make of it. None: it is not taken as it is, and lets
    /// others pass.
    pub(super) async fn compose_upkeep(
        &mut self,
        request: SignRequest,
        duty: &Duty,
        most: usize,
        message: impl Fn(u32) -> ExecuteMsg,
        carries: impl Fn(u64) -> Load,
    ) -> Result<Option<Composed>, SignError> {
        let max_gas = self.live.get().batch.max_gas;
        // Ends: it is halved until it is of one.
        loop {
            let items = self.rota.items(duty, most);
            let adjustment = self.rota.adjustment(duty);
            let limit = u32::try_from(items).unwrap_or(u32::MAX);
            let messages = vec![self.message(&message(limit))?];
            let load = carries(u64::from(limit));
            let why = match self.gas(request, messages.clone(), load).await {
                // What is too much for one of them is signed all the same, as a report's is.
                Ok(gas) if items <= 1 || adjustment.apply(gas) <= max_gas => {
                    return Ok(Some(Composed {
                        messages,
                        content: Content::Upkeep,
                        load,
                        gas,
                        margin: 0,
                        adjustment,
                    }));
                }
                Ok(gas) => format!("it takes {gas} gas, and batch.max_gas is {max_gas}"),
                Err(e) => match e.verdict() {
                    Some(Verdict::OutOfGas | Verdict::TxTooLarge) if items > 1 => e.to_string(),
                    Some(verdict) if may_be_its_fault(&verdict) => {
                        self.put_off(duty, &e.to_string());
                        return Ok(None);
                    }
                    _ => return Err(e),
                },
            };
            tracing::info!(%duty, items, "a duty is too large, the next is half of it: {why}");
            self.rota.halve(duty, clock::steady());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hpc_chain::registry::RegistryClient;
    use hpc_chain::settle::BatchId;
    use serde_json::Value;

    use super::super::super::driver::tests::driver;
    use super::super::super::fit::Fit;
    use super::*;
    use crate::fake_chain::{Answer, chain};

    const REQUEST: SignRequest = SignRequest {
        batch: BatchId(1),
        account_number: 1,
        sequence: 1,
        timeout_height: 20,
    };

    /// The limits that a prune of 32 is simulated with, one after the other, and what comes of it.
    async fn tried(answer: fn(u64) -> Answer) -> (Vec<u64>, Option<u64>, Driver) {
        let dir = tempfile::tempdir().unwrap();
        let d = driver(dir.path()).await;
        tried_by(d, answer).await
    }

    /// The same by a driver that has tried before.
    async fn tried_by(mut d: Driver, answer: fn(u64) -> Answer) -> (Vec<u64>, Option<u64>, Driver) {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&limits);
        let fake = chain(Arc::default(), move |asked: &Value| {
            let limit = asked["prune"]["limit"].as_u64().unwrap();
            seen.lock().unwrap().push(limit);
            answer(limit)
        });
        d.client = RegistryClient::new(fake.await, "wasm1contract");
        let prune = |limit| ExecuteMsg::Prune { limit: Some(limit) };
        let removed = |nodes| Load::Prune { pages: 1, nodes };
        let composed = d
            .compose_upkeep(REQUEST, &Duty::Prune, 32, prune, removed)
            .await
            .unwrap();
        let limits = limits.lock().unwrap().clone();
        (limits, composed.map(|c| c.gas), d)
    }

    #[tokio::test]
    async fn what_takes_more_gas_than_a_transaction_may_is_halved_until_it_fits() {
        let (limits, gas, mut d) = tried(|limit| Answer::Gas(limit * 1_500_000)).await;
        assert_eq!(
            (limits, gas),
            (vec![32, 16, 8], Some(12_000_000)),
            "with 1.3 of it below 20,000,000"
        );
        let later = clock::steady().after(1);
        assert_eq!(d.rota.items(&Duty::Prune, 32), 8, "the next one begins with that");
        assert_eq!(d.rota.next(&[Duty::Prune].into(), later), Some(Duty::Prune));
        let (limits, gas, _) = tried(|_| Answer::Gas(90_000_000)).await;
        assert_eq!(
            (limits, gas),
            (vec![32, 16, 8, 4, 2, 1], Some(90_000_000)),
            "one is never too much"
        );
    }

    #[tokio::test]
    async fn what_runs_out_of_gas_is_halved_until_it_fits() {
        let (limits, gas, _) = tried(|limit| match limit {
            0..=4 => Answer::Gas(7),
            _ => Answer::Fails("out of gas in location: ReadFlat; gasWanted: 0, gasUsed: 50000001"),
        })
        .await;
        assert_eq!((limits, gas), (vec![32, 16, 8, 4], Some(7)));
    }

    #[tokio::test]
    async fn what_the_node_simulates_is_learnt_and_what_it_does_not_is_fitted_and_said() {
        let load = Load::Prune { pages: 1, nodes: 32 };
        let fresh = Fit::default();
        let (_, gas, d) = tried(|_| Answer::Gas(3_000_000)).await;
        assert_eq!(gas, Some(3_000_000));
        assert!(d.fit.gas(load) > fresh.gas(load) && d.health.troubles().is_empty());
        let (limits, gas, d) = tried(|_| Answer::NoService).await;
        assert_eq!((limits, gas), (vec![32], Some(fresh.most(load))));
        let said: Vec<_> = d.health.troubles().into_iter().map(|t| t.code).collect();
        assert_eq!(said, ["simulation_missing"]);
        assert!(d.health.reasons().is_empty(), "the daemon works all the same");
        let (_, gas, d) = tried_by(d, |_| Answer::Gas(3_000_000)).await;
        assert!(gas.is_some() && d.health.troubles().is_empty());
    }

    #[tokio::test]
    async fn a_node_that_refuses_what_it_has_simulated_simulates() {
        for refusal in [
            "invalid_field: limit must be 1 to 256, is 0: execute wasm contract failed",
            "out of gas in location: ReadFlat; gasWanted: 0, gasUsed: 50000001",
        ] {
            let (_, _, mut d) = tried(|_| Answer::NoService).await;
            let said = |d: &Driver| d.health.troubles().iter().any(|t| t.code == "simulation_missing");
            assert!(said(&d));
            let fake = chain(Arc::default(), move |_: &Value| Answer::Fails(refusal));
            d.client = RegistryClient::new(fake.await, "wasm1contract");
            let message = d.message(&ExecuteMsg::Prune { limit: Some(1) }).unwrap();
            let load = Load::Prune { pages: 1, nodes: 1 };
            d.gas(REQUEST, vec![message], load).await.unwrap_err();
            assert!(!said(&d), "{refusal}");
        }
    }

    #[tokio::test]
    async fn what_the_contract_refuses_lets_others_pass_at_once() {
        const REFUSAL: &str = "invalid_field: limit must be 1 to 256, is 0: execute wasm contract failed";
        let (limits, gas, mut d) = tried(|_| Answer::Fails(REFUSAL)).await;
        assert_eq!((limits, gas), (vec![32], None));
        let now = clock::steady();
        assert_eq!(d.rota.next(&[Duty::Prune].into(), now), None);
        assert!(d.backoff_until <= now, "reports do not wait for it");
    }
}
