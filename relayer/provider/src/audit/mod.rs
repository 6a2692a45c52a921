//! Who did what: every privileged act, by command line or admin listener, is appended in the transaction of the act
//! itself. Rows are chained by SHA-256, so that none can be altered, removed or moved unnoticed; the newest digest is
//! anchored on chain, so that neither can the whole log be written anew. Secrets never stand in it.

mod actor;
mod anchor;
mod rows;
mod told;

pub use actor::{Actor, Role, Via};
pub use anchor::{Anchor, Checked, anchored, check, record_anchor};
pub use hpc_schema::audit::{Broken, Chain, Digest, KIND, Row};
pub use rows::{Head, MAX_PAGE, after, append, ask_head, head, newest, newest_of, page, told_head, verify};
pub use told::{AuditHead, AuditPage};

/// What is appended; time, number and digests come with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// UNIX milliseconds.
    pub at: u64,
    /// Who.
    pub by: Actor,
    /// What, such as `node.disable`.
    pub action: &'static str,
    /// To what, such as `node hpc-cluster-1/node-0001`.
    pub target: String,
    /// `done`, `begun`, `refused`, `failed` or, where it may have taken effect or still do, `unknown`.
    pub result: &'static str,
    /// Particulars.
    pub detail: serde_json::Value,
}

impl Entry {
    /// Of what the daemon does by itself, now.
    #[must_use]
    pub fn of_daemon(
        action: &'static str,
        target: String,
        result: &'static str,
        detail: serde_json::Value,
    ) -> Self {
        Self {
            at: crate::clock::now_ms(),
            by: Actor::daemon(),
            action,
            target,
            result,
            detail,
        }
    }
}

#[cfg(test)]
mod tests;
