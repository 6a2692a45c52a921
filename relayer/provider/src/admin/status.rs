use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use crate::ops::{Readiness, Reason};
use crate::store::StoreError;
use crate::{clock, settle, spool};

/// Whether the daemon works, and what waits.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Whether it answers.
    pub running: bool,
    /// Whether nothing keeps it from its work.
    pub ready: bool,
    /// What does.
    pub reasons: Vec<Reason>,
    /// What is wrong besides: it works all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Reason>,
    /// Reports that wait for a transaction.
    pub reports_waiting: u64,
    /// Reports in transactions that have not ended.
    pub reports_in_transactions: u64,
    /// Transactions that have not ended.
    pub open_transactions: u64,
    /// Age of the oldest report that is not on chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_unsettled_seconds: Option<u64>,
    /// What each key pays for a unit of gas, where that is above `chain.gas_price`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gas_prices: BTreeMap<String, String>,
}

impl Admin {
    /// With what the daemon says about itself; none: it does not answer.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn status(&self, said: Option<Readiness>) -> Result<Status, StoreError> {
        let depth = spool::depth(self.store.reader()).await?;
        let prices = settle::learnt_prices(self.store.reader()).await?;
        let running = said.is_some();
        let Readiness {
            ready,
            reasons,
            notices,
        } = said.unwrap_or_default();
        Ok(Status {
            running,
            ready,
            reasons,
            notices,
            reports_waiting: depth.waiting,
            reports_in_transactions: depth.bound,
            open_transactions: settle::open_transactions(self.store.reader()).await?,
            oldest_unsettled_seconds: depth
                .oldest
                .map(|since| clock::now_ms().saturating_sub(since) / 1000),
            gas_prices: prices
                .into_iter()
                .map(|(key, price)| (key, price.to_string()))
                .collect(),
        })
    }
}
