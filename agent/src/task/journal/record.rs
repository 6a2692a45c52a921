use std::collections::BTreeMap;

use hpc_schema::task::{Task, TaskOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::task::effect::{Effect, Trace};
use crate::task::owner::Owner;

/// One line of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line: a verified task, to be carried out.
    Taken {
        /// As it was delivered.
        task: Task,
        /// Its hash.
        hash: String,
        /// UNIX seconds.
        at: u64,
        /// Under which name what it makes stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<Owner>,
    },
    /// It was begun.
    Began {
        /// UNIX seconds.
        at: u64,
    },
    /// A phase was begun.
    Phase {
        /// Its name.
        name: String,
        /// Milliseconds that the one before took.
        took_ms: u64,
    },
    /// An effect is about to be done.
    Intent {
        /// Its place.
        step: usize,
        /// What.
        effect: Effect,
    },
    /// What it makes is there, without its name.
    Made {
        /// Of which effect.
        step: usize,
        /// What identifies it.
        trace: Trace,
    },
    /// It is done.
    Done {
        /// Which effect.
        step: usize,
    },
    /// It is undone.
    Undone {
        /// Which effect.
        step: usize,
    },
    /// It could not be undone, or it cannot be established.
    Stuck {
        /// Which effect.
        step: usize,
        /// Why.
        why: String,
    },
    /// Something to know of what stays.
    Fact {
        /// What.
        name: String,
        /// Value.
        value: Value,
    },
    /// How it ended.
    Ended {
        /// How.
        outcome: TaskOutcome,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// The same for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// The result: the bytes that are signed.
        result: Box<serde_json::value::RawValue>,
        /// UNIX seconds.
        started_at: u64,
        /// UNIX seconds.
        finished_at: u64,
    },
    /// The gateway has the result on record.
    Heard,
    /// What stayed is about to be given back: from here on it is nobody's.
    Releasing {
        /// By whom.
        by: String,
    },
    /// What stayed was given back by another task, or by the agent.
    Released {
        /// By whom.
        by: String,
        /// UNIX seconds.
        at: u64,
    },
}

/// Milliseconds of each phase.
pub(super) type Timings = BTreeMap<String, u64>;

/// The line of a record: 16 hex digits of SHA-256 over the JSON, a space, the JSON.
pub(in crate::task) fn line<T: Serialize>(record: &T) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_vec(record)?;
    let mut line = check(&json).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&json);
    line.push(b'\n');
    Ok(line)
}

/// The record of a line without its end; none if it is not whole.
pub(in crate::task) fn parse<T: serde::de::DeserializeOwned>(line: &[u8]) -> Option<T> {
    let (sum, json) = line.split_at_checked(16)?;
    let json = json.strip_prefix(b" ")?;
    (sum == check(json).as_bytes())
        .then(|| serde_json::from_slice(json).ok())
        .flatten()
}

fn check(json: &[u8]) -> String {
    let mut sum = hex::encode(Sha256::digest(json));
    sum.truncate(16);
    sum
}
