use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;
use crate::files::{Durability, Replace, write};
use crate::task::ledger::Holding;

/// What completed tasks have left on the host, for the heartbeat and for people; no secret is in it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Each thing that is held.
    pub holdings: Vec<Held>,
}

/// One thing that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What it is: `vm`, `slice`, `alloc`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The task that made it.
    pub task_id: String,
    /// UNIX seconds.
    pub since: u64,
    /// What its handler notes for others: facts whose names begin with `public.`, without that.
    pub facts: BTreeMap<String, Value>,
}

impl From<Holding> for Held {
    fn from(h: Holding) -> Self {
        let public = |(name, value): (String, Value)| Some((name.strip_prefix("public.")?.to_owned(), value));
        Self {
            kind: h.owner.kind().to_owned(),
            name: h.owner.name().to_owned(),
            task_id: h.task_id.to_string(),
            since: h.since,
            facts: h.facts.into_iter().filter_map(public).collect(),
        }
    }
}

impl State {
    /// Writes what is held, if it has changed.
    pub(super) fn publish(&mut self) {
        let holdings = Holdings {
            holdings: self.ledger.held("").into_iter().map(Held::from).collect(),
        };
        let Ok(bytes) = serde_json::to_vec_pretty(&holdings) else {
            return;
        };
        if self.published.as_ref() == Some(&bytes) {
            return;
        }
        let path = self.host.dir.holdings();
        match write(&path, &bytes, 0o644, Replace::Yes, Durability::Atomic) {
            Ok(()) => self.published = Some(bytes),
            Err(e) => tracing::warn!("{e}"),
        }
    }
}
