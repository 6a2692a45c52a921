use std::sync::Arc;

use serde_yaml_ng::Value;
use tokio::sync::watch;

use super::{Config, ConfigError};

/// Keys that a running daemon takes into use; the others need a restart.
pub(super) const RELOADABLE: &[&str] = &[
    "agents.metrics_retention_hours",
    "agents.probe_neighbours",
    "agents.sampling_interval_seconds",
    "audit.anchor",
    "audit.anchor_interval",
    "batch.max_gas",
    "batch.max_size",
    "batch.max_tx_bytes",
    "batch.submit_interval",
    "chain.rpc",
    "chain.sync",
    "gateway.certificate_lifetime",
    "gateway.handshake_timeout",
    "gateway.header_timeout",
    "gateway.idle_timeout",
    "gateway.max_anonymous_per_address",
    "gateway.max_body_bytes",
    "gateway.max_connections_per_node",
    "gateway.request_timeout",
    "gateway.requests_per_minute",
    "log.level",
    "store.history",
];

/// The configuration in force, which may change while the daemon runs.
#[derive(Debug, Clone)]
pub struct Live(watch::Sender<Arc<Config>>);

/// What a reload found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Change {
    /// Keys that now have another value.
    pub changed: Vec<String>,
    /// Keys whose other value counts from the next start on.
    pub waiting: Vec<String>,
}

impl Live {
    /// With this one.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self(watch::Sender::new(Arc::new(config)))
    }

    /// The one in force.
    #[must_use]
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.borrow())
    }

    /// Moves whenever a key has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.0.subscribe()
    }

    /// Takes those keys of `next` into use that may change at run time.
    ///
    /// # Errors
    /// If what comes of it cannot work; the former stays in force.
    pub fn update(&self, next: &Config) -> Result<Change, ConfigError> {
        let before = self.get();
        let fail = |e: serde_yaml_ng::Error| ConfigError::Parse {
            origin: "the new configuration".to_owned(),
            message: e.to_string(),
        };
        let mut merged = serde_yaml_ng::to_value(&*before).map_err(fail)?;
        let wanted = serde_yaml_ng::to_value(next).map_err(fail)?;
        let mut change = Change::default();
        for (section, keys) in wanted.as_mapping().into_iter().flatten() {
            for (name, value) in keys.as_mapping().into_iter().flatten() {
                let Some(slot) = slot(&mut merged, section, name).filter(|slot| **slot != *value) else {
                    continue;
                };
                let key = format!(
                    "{}.{}",
                    section.as_str().unwrap_or_default(),
                    name.as_str().unwrap_or_default()
                );
                if RELOADABLE.contains(&key.as_str()) {
                    *slot = value.clone();
                    change.changed.push(key);
                } else {
                    change.waiting.push(key);
                }
            }
        }
        let merged: Config = serde_yaml_ng::from_value(merged).map_err(fail)?;
        merged.check()?;
        if !change.changed.is_empty() {
            self.0.send_replace(Arc::new(merged));
        }
        Ok(change)
    }
}

fn slot<'a>(root: &'a mut Value, section: &Value, name: &Value) -> Option<&'a mut Value> {
    root.as_mapping_mut()?
        .get_mut(section)?
        .as_mapping_mut()?
        .get_mut(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Span;

    #[test]
    fn what_may_change_changes_and_the_rest_waits_for_the_next_start() {
        let live = Live::new(Config::default());
        let mut next = Config::default();
        next.agents.sampling_interval_seconds = Some(20);
        next.store.history = Span::seconds(120);
        next.chain.id = "hpc-2".to_owned();
        next.gateway.max_connections = 10;
        next.gateway.max_body_bytes = 40_000;
        let change = live.update(&next).unwrap();
        assert_eq!(
            change.changed,
            [
                "gateway.max_body_bytes",
                "agents.sampling_interval_seconds",
                "store.history"
            ]
        );
        assert_eq!(change.waiting, ["chain.id", "gateway.max_connections"]);
        let now = live.get();
        assert_eq!(now.agents.sampling_interval_seconds, Some(20));
        assert_eq!(
            (
                now.chain.id.as_str(),
                now.gateway.max_connections,
                now.gateway.max_body_bytes
            ),
            ("", 12_000, 40_000)
        );
        // The same again changes nothing, and still says what waits.
        let again = live.update(&next).unwrap();
        assert_eq!((again.changed, again.waiting), (Vec::new(), change.waiting));
    }
}
