use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::heartbeat::HealthStatus;
use hpc_schema::refusal::{Refusal, RefusalKind};

use crate::registry::Node;
use crate::store::StoreError;

/// What becomes of a heartbeat.
#[derive(Debug)]
pub enum Verdict {
    /// Durably stored.
    Accepted {
        /// The registration that it is of.
        epoch: u64,
        /// The report's sequence.
        sequence: u32,
        /// As the node says.
        health: HealthStatus,
    },
    /// Read and refused: HTTP 200 with `accepted: false`.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The node's record, if there is one.
        node: Option<Arc<Node>>,
        /// Nothing is wrong with it but that its number or nonce was used before.
        repeated: bool,
    },
    /// Not a heartbeat of this connection: a problem with this HTTP status.
    Problem {
        /// Status.
        status: u16,
        /// Why.
        refusal: Refusal,
    },
    /// The spool cannot take it now, or too many wait.
    Unavailable(StoreError),
    /// Nobody has come to a verdict, for a fault of the program that is logged.
    Unjudged,
}

impl Verdict {
    /// The node whose number is not above what was accepted of it, if that is what is wrong.
    pub(super) fn stale_of(&self) -> Option<Arc<Node>> {
        match self {
            Self::Refused {
                refusal,
                node: Some(node),
                ..
            } if refusal.code == Code::StaleSequence => Some(Arc::clone(node)),
            _ => None,
        }
    }
}

pub(super) fn stale(acked: u32) -> Refusal {
    Refusal::field(
        Code::StaleSequence,
        "sequence_number",
        format_args!("must be above {acked}, which has been accepted"),
    )
}

pub(super) fn repeated(refusal: Refusal, node: Arc<Node>) -> Verdict {
    Verdict::Refused {
        refusal,
        node: Some(node),
        repeated: true,
    }
}

pub(super) fn refuse(refusal: Refusal, node: Option<Arc<Node>>) -> Verdict {
    match (refusal.kind, refusal.code) {
        (_, Code::BodyTooLarge) => Verdict::Problem { status: 413, refusal },
        (RefusalKind::Malformed, _) | (_, Code::IdentityMismatch) => Verdict::Problem {
            status: refusal.heartbeat_status(),
            refusal,
        },
        (RefusalKind::Semantic, _) => Verdict::Refused {
            refusal,
            node,
            repeated: false,
        },
    }
}
