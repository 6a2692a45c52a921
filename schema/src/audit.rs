//! The provider's audit log as it is exported: rows chained by SHA-256. The newest digest is anchored on chain, as kind
//! [`KIND`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What every digest begins with: no other message of the system does.
const DOMAIN: &[u8] = b"virtengine-audit-v1";

/// `kind` of its anchors in the contract.
pub const KIND: &str = "audit_log";

/// A SHA-256.
pub type Digest = [u8; 32];

/// One row of the log, as it is exported: a JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its number, from 1 without gaps.
    pub seq: u64,
    /// UNIX milliseconds.
    pub at: u64,
    /// Who.
    pub actor: String,
    /// In which role.
    pub role: String,
    /// `command_line`, `admin_api` or `daemon`.
    pub via: String,
    /// What, such as `node.disable`.
    pub action: String,
    /// To what.
    pub target: String,
    /// `done`, `begun`, `refused`, `failed` or, where it may have taken effect or still do, `unknown`.
    pub result: String,
    /// Particulars: JSON text of an object.
    pub detail: String,
    /// Digest of the row before, lower-case hex; 64 zeros for the first.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub previous: String,
    /// Digest of this row, lower-case hex.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub digest: String,
}

impl Row {
    /// `SHA-256("virtengine-audit-v1" ‖ previous 32 ‖ seq u64 ‖ at u64 ‖ texts)`: numbers big-endian; the texts are
    /// actor, role, via, action, target, result and detail, each with its length in bytes as u32 before it.
    #[must_use]
    pub fn digest_after(&self, previous: &Digest) -> Digest {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(previous);
        hash.update(self.seq.to_be_bytes());
        hash.update(self.at.to_be_bytes());
        for text in [
            &self.actor,
            &self.role,
            &self.via,
            &self.action,
            &self.target,
            &self.result,
            &self.detail,
        ] {
            hash.update(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
            hash.update(text.as_bytes());
        }
        hash.finalize().into()
    }
}

/// Where a log is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A number is left out, or stands twice.
    #[error("after row {after} comes row {found}: rows were removed, added or moved")]
    Number {
        /// The last row that is right.
        after: u64,
        /// The one that follows.
        found: u64,
    },
    /// A row does not continue the one before.
    #[error("row {seq} does not continue the row before it: a row was removed, replaced or moved")]
    Link {
        /// Its number.
        seq: u64,
    },
    /// A row's text is not what its digest was made of.
    #[error("row {seq} was altered")]
    Altered {
        /// Its number.
        seq: u64,
    },
    /// The log ends before or after the recorded head.
    #[error(
        "the log ends at row {found}, its recorded head is row {head}: rows were removed from or added to its end"
    )]
    End {
        /// The last row.
        found: u64,
        /// The head.
        head: u64,
    },
}

/// Rows that have been followed from the first on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of the last row; 0: none.
    pub seq: u64,
    /// Its digest; zeros: none.
    pub digest: Digest,
}

impl Chain {
    /// The row before this one, as this one tells of it; none if it is no row's.
    #[must_use]
    pub fn before(row: &Row) -> Option<Self> {
        Some(Self {
            seq: row.seq.checked_sub(1)?,
            digest: hex::decode(&row.previous).ok()?.try_into().ok()?,
        })
    }

    /// Takes the next row.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn follow(&mut self, row: &Row) -> Result<(), Broken> {
        if row.seq != self.seq + 1 {
            return Err(Broken::Number {
                after: self.seq,
                found: row.seq,
            });
        }
        if row.previous != hex::encode(self.digest) {
            return Err(Broken::Link { seq: row.seq });
        }
        let digest = row.digest_after(&self.digest);
        if row.digest != hex::encode(digest) {
            return Err(Broken::Altered { seq: row.seq });
        }
        *self = Self { seq: row.seq, digest };
        Ok(())
    }
}
