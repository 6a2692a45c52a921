use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use serde::Serialize;

/// Why the daemon is not ready, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Stable word, such as `chain_unreachable`.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// What keeps the daemon from doing all of its work. It accepts heartbeats all the same.
#[derive(Debug, Default)]
pub struct Health(RwLock<BTreeMap<&'static str, String>>);

impl Health {
    /// Something is wrong; logged when it begins.
    pub fn raise(&self, code: &'static str, message: impl Into<String>) {
        let message = message.into();
        let before = self
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(code, message.clone());
        if before.is_none() {
            tracing::warn!(code, "not ready: {message}");
        }
    }

    /// It is right again; logged when it ends.
    pub fn clear(&self, code: &'static str) {
        let before = self
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(code);
        if before.is_some() {
            tracing::info!(code, "no longer so");
        }
    }

    /// Raises or clears.
    pub fn set(&self, code: &'static str, wrong: Option<String>) {
        match wrong {
            Some(message) => self.raise(code, message),
            None => self.clear(code),
        }
    }

    /// Every reason; none: ready.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.iter()
            .map(|(code, message)| Reason {
                code,
                message: message.clone(),
            })
            .collect()
    }
}
