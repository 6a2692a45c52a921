//! Parameters of the contract (specification 000 "TTL and Expiry Semantics").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may create clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterCreation {
    /// Anyone who pays the deposit.
    Open,
    /// The admin alone.
    Admin,
}

/// An amount of one denomination; the amount is an integer string, as everywhere in Cosmos.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coin {
    /// Denomination, e.g. `stake`.
    pub denom: String,
    /// Integer in decimal notation.
    pub amount: String,
}

/// All parameters. Durations are whole seconds; ranges are the specification's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Params {
    /// Normal heartbeat interval: 10–120, default 30.
    pub heartbeat_interval: u32,
    /// Silence after which a node is STALE: 60–600, default 120.
    pub heartbeat_timeout: u32,
    /// Silence after which a node is OFFLINE: 120–1800, default 300.
    pub offline_threshold: u32,
    /// Silence after which a sweep deregisters: 600–86400, default 3600.
    pub deregistration_delay: u32,
    /// How long a deregistered node's metadata stays: 86400 (a day) – 31536000 (a year), default 30 days.
    pub retention: u32,
    /// Most reports in one message: 1024–8192, default 1024.
    pub batch_limit: u32,
    /// Who may create clusters.
    pub cluster_creation: ClusterCreation,
    /// Paid with `create_cluster`, against squatting on ids, given back by `close_cluster`; absent: nothing to pay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_deposit: Option<Coin>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            heartbeat_interval: 30,
            heartbeat_timeout: 120,
            offline_threshold: 300,
            deregistration_delay: 3600,
            retention: 30 * 86_400,
            batch_limit: 1024,
            cluster_creation: ClusterCreation::Open,
            cluster_deposit: None,
        }
    }
}

/// A parameter out of its range or order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Outside its own range.
    #[error("{field} must be {min} to {max}, is {value}")]
    Range {
        /// Name of the parameter.
        field: &'static str,
        /// Lowest allowed.
        min: u32,
        /// Highest allowed.
        max: u32,
        /// What was given.
        value: u32,
    },
    /// interval < timeout < offline < deregistration does not hold.
    #[error("{lower} must be below {higher}")]
    Order {
        /// Must be the smaller one.
        lower: &'static str,
        /// Must be the larger one.
        higher: &'static str,
    },
    /// The deposit's amount is not a positive integer, or its denomination is not one.
    #[error("cluster_deposit needs a denomination and a positive integer amount")]
    Deposit,
}

impl Params {
    /// Checks ranges and order.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), ParamsError> {
        let Self {
            heartbeat_interval,
            heartbeat_timeout,
            offline_threshold,
            deregistration_delay,
            retention,
            batch_limit,
            cluster_creation: _,
            cluster_deposit,
        } = self;
        for (field, value, min, max) in [
            ("heartbeat_interval", *heartbeat_interval, 10, 120),
            ("heartbeat_timeout", *heartbeat_timeout, 60, 600),
            ("offline_threshold", *offline_threshold, 120, 1800),
            ("deregistration_delay", *deregistration_delay, 600, 86_400),
            ("retention", *retention, 86_400, 31_536_000),
            ("batch_limit", *batch_limit, 1024, 8192),
        ] {
            if !(min..=max).contains(&value) {
                return Err(ParamsError::Range {
                    field,
                    min,
                    max,
                    value,
                });
            }
        }
        for (lower, a, higher, b) in [
            (
                "heartbeat_interval",
                heartbeat_interval,
                "heartbeat_timeout",
                heartbeat_timeout,
            ),
            (
                "heartbeat_timeout",
                heartbeat_timeout,
                "offline_threshold",
                offline_threshold,
            ),
            (
                "offline_threshold",
                offline_threshold,
                "deregistration_delay",
                deregistration_delay,
            ),
        ] {
            if a >= b {
                return Err(ParamsError::Order { lower, higher });
            }
        }
        if let Some(Coin { denom, amount }) = cluster_deposit {
            let amount_ok = amount.parse::<u128>().is_ok_and(|a| a > 0);
            let denom_ok = (3..=128).contains(&denom.len())
                && denom.starts_with(|c: char| c.is_ascii_alphabetic())
                && denom
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/:._-".contains(&b));
            if !amount_ok || !denom_ok {
                return Err(ParamsError::Deposit);
            }
        }
        Ok(())
    }
}

/// A change of some parameters; what is absent stays.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParamsUpdate {
    /// See [`Params::heartbeat_interval`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval: Option<u32>,
    /// See [`Params::heartbeat_timeout`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<u32>,
    /// See [`Params::offline_threshold`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_threshold: Option<u32>,
    /// See [`Params::deregistration_delay`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deregistration_delay: Option<u32>,
    /// See [`Params::retention`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<u32>,
    /// See [`Params::batch_limit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_limit: Option<u32>,
    /// See [`Params::cluster_creation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_creation: Option<ClusterCreation>,
    /// See [`Params::cluster_deposit`]; an amount of "0" removes the deposit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_deposit: Option<Coin>,
}

impl ParamsUpdate {
    /// The parameters after this change, checked.
    ///
    /// # Errors
    /// The first rule that the result breaks.
    pub fn apply(self, to: &Params) -> Result<Params, ParamsError> {
        let deposit = match self.cluster_deposit {
            None => to.cluster_deposit.clone(),
            Some(c) if c.amount == "0" => None,
            Some(c) => Some(c),
        };
        let params = Params {
            heartbeat_interval: self.heartbeat_interval.unwrap_or(to.heartbeat_interval),
            heartbeat_timeout: self.heartbeat_timeout.unwrap_or(to.heartbeat_timeout),
            offline_threshold: self.offline_threshold.unwrap_or(to.offline_threshold),
            deregistration_delay: self.deregistration_delay.unwrap_or(to.deregistration_delay),
            retention: self.retention.unwrap_or(to.retention),
            batch_limit: self.batch_limit.unwrap_or(to.batch_limit),
            cluster_creation: self.cluster_creation.unwrap_or(to.cluster_creation),
            cluster_deposit: deposit,
        };
        params.check()?;
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_specifications_and_pass() {
        let p = Params::default();
        p.check().unwrap();
        assert_eq!(
            (
                p.heartbeat_interval,
                p.heartbeat_timeout,
                p.offline_threshold,
                p.deregistration_delay
            ),
            (30, 120, 300, 3600)
        );
    }

    #[test]
    fn every_range_and_the_order_are_enforced() {
        let base = Params::default();
        let bad = [
            ParamsUpdate {
                heartbeat_interval: Some(9),
                ..Default::default()
            },
            ParamsUpdate {
                heartbeat_interval: Some(121),
                ..Default::default()
            },
            ParamsUpdate {
                heartbeat_timeout: Some(59),
                ..Default::default()
            },
            ParamsUpdate {
                offline_threshold: Some(1801),
                ..Default::default()
            },
            ParamsUpdate {
                deregistration_delay: Some(599),
                ..Default::default()
            },
            ParamsUpdate {
                retention: Some(1),
                ..Default::default()
            },
            ParamsUpdate {
                batch_limit: Some(1023),
                ..Default::default()
            },
            ParamsUpdate {
                heartbeat_timeout: Some(300),
                ..Default::default()
            },
            ParamsUpdate {
                heartbeat_interval: Some(120),
                ..Default::default()
            },
            ParamsUpdate {
                offline_threshold: Some(600),
                deregistration_delay: Some(600),
                ..Default::default()
            },
            ParamsUpdate {
                cluster_deposit: Some(Coin {
                    denom: "stake".into(),
                    amount: "-1".into(),
                }),
                ..Default::default()
            },
        ];
        for update in bad {
            assert!(update.clone().apply(&base).is_err(), "{update:?}");
        }
    }
}
