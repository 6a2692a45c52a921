//! The durable state of one signing key, and what an operator may read of it.

use serde::{Deserialize, Serialize};

use super::types::{BatchId, Condition, End, Inclusion, SignRequest};
use super::view::View;
use crate::hash::TxHash;

/// Everything about one signing key. Serialise it whole at each [`super::Action::Persist`]; what is not serialised is
/// learnt again after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub(super) account: Option<AccountView>,
    pub(super) job: Option<Job>,
    #[serde(skip)]
    pub(super) view: View,
}

/// The newest that is proven about the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountView {
    /// Account number.
    #[serde(with = "u64_text")]
    pub number: u64,
    /// Next sequence.
    #[serde(with = "u64_text")]
    pub sequence: u64,
    /// Height of the newest proof.
    pub height: u64,
    /// Lowest height at which this sequence was seen: an endpoint below it would refuse it.
    pub since: u64,
}

/// The batch under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) batch: BatchId,
    pub(super) phase: Phase,
}

/// How far the batch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// Waits for a live chain and a fresh account answer. Nothing signed.
    Queued,
    /// The driver was asked to sign. Nothing signed that counts.
    Planned {
        /// With these numbers.
        request: SignRequest,
    },
    /// Stored; perhaps sent.
    Signed {
        /// What.
        tx: Outstanding,
    },
    /// At least one endpoint was reached, or may have been.
    Sent {
        /// What.
        tx: Outstanding,
    },
    /// The end is proven; the batch's members are to be settled.
    Ended {
        /// What.
        tx: Outstanding,
        /// How.
        result: End,
    },
}

/// A signed transaction whose end is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outstanding {
    /// Its hash.
    pub hash: TxHash,
    /// Its bytes.
    #[serde(with = "bytes_text")]
    pub bytes: Vec<u8>,
    /// Account number it was signed with.
    #[serde(with = "u64_text")]
    pub account_number: u64,
    /// Its sequence s.
    #[serde(with = "u64_text")]
    pub sequence: u64,
    /// T.
    pub timeout_height: u64,
    /// The highest block known when it was signed: it is in no block up to here.
    pub signed_height: u64,
    /// Our clock then, UNIX milliseconds.
    pub signed_at_ms: u64,
    /// It was seen in a block with this result, which may not have consumed the sequence.
    pub refused: Option<Inclusion>,
}

impl State {
    /// Whether [`super::Input::Submit`] would be taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// The batch under way and its phase.
    #[must_use]
    pub fn job(&self) -> Option<(BatchId, &Phase)> {
        self.job.as_ref().map(|j| (j.batch, &j.phase))
    }

    /// The transaction under way, signed or sent or ended.
    #[must_use]
    pub fn outstanding(&self) -> Option<&Outstanding> {
        match &self.job.as_ref()?.phase {
            Phase::Signed { tx } | Phase::Sent { tx } | Phase::Ended { tx, .. } => Some(tx),
            Phase::Queued | Phase::Planned { .. } => None,
        }
    }

    /// Whether the sequence of the transaction under way was seen used: what is found of it decides how it ended.
    pub(super) fn is_used(&self) -> bool {
        self.view.consumed_at.is_some()
    }

    /// What is known of the account.
    #[must_use]
    pub fn account(&self) -> Option<AccountView> {
        self.account
    }

    /// The chain's liveness as last seen.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.view.condition()
    }

    /// The highest block seen since the start.
    #[must_use]
    pub fn height(&self) -> Option<u64> {
        self.view.top_height()
    }
}

/// u64 as text: account numbers use all 64 bits, which JSON numbers and SQL integers do not.
pub(super) mod u64_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(n)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

mod bytes_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(d)?).map_err(D::Error::custom)
    }
}
