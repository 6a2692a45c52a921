use std::net::IpAddr;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::NodeState;
use hpc_schema::registry::{Drain, RelayView};
use hpc_schema::report::Tag;
use hpc_schema::time::UnixSeconds;
use sha2::{Digest as _, Sha256};

/// How long a resume is told to a node: it may have been off.
const RESUME_SECONDS: u64 = 7 * 24 * 3600;

/// A node on record.
#[derive(Debug, Clone)]
pub struct Node {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// The chain's record.
    pub chain: RelayView,
    /// Digest of the section on chain.
    pub section_digest: [u8; 16],
    /// What reports of this epoch are bound to.
    pub tag: Tag,
    /// Height of the answer that `chain` is from.
    pub height: u64,
    /// What the gateway knows beside the chain.
    pub contact: Contact,
    /// Highest sequence accepted in this epoch.
    pub acked: u32,
    /// When that was, UNIX milliseconds; 0: never.
    pub received_at: u64,
    /// What an accepted report was refused with afterwards, and its sequence, until a later one counts.
    pub refused: Option<(Code, u32)>,
}

impl Node {
    /// The agent's key.
    #[must_use]
    pub fn key(&self) -> &AgentKey {
        &self.chain.agent_pubkey
    }

    /// The highest sequence of this epoch that the gateway has accepted or the chain has on record: after a lost
    /// store, or with another relayer about, the chain knows more. A heartbeat must be above it.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.acked.max(self.chain.sequence)
    }

    /// Whether the chain has the node as deregistered.
    #[must_use]
    pub fn is_deregistered(&self) -> bool {
        self.chain.recorded_state == NodeState::Deregistered
    }
}

/// What the gateway knows of a node beside the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contact {
    /// Where its connections come from.
    pub address: Option<IpAddr>,
    /// UDP port that answers latency probes.
    pub probe_port: Option<u16>,
    /// Where peers reach that port, if the node has said so.
    pub probe_address: Option<IpAddr>,
    /// The provider's newest order.
    pub order: Option<Order>,
    /// What the gateway itself last turned away, and when (UNIX milliseconds).
    pub refusal: Option<(Code, u64)>,
}

/// What a node says of its probes when it registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeEndpoint {
    /// UDP port that answers them.
    pub port: Option<u16>,
    /// Where peers reach it; none: at `from`, and later where the heartbeats come from.
    pub address: Option<IpAddr>,
    /// Where the request came from.
    pub from: IpAddr,
}

/// An order that the node has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Which.
    pub kind: OrderKind,
    /// Id of the command; the same as long as it is the same order.
    pub id: String,
    /// When it was given.
    pub at: UnixSeconds,
    /// Until when it is told.
    pub until: UnixSeconds,
}

/// Kinds of orders that follow from the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    /// A provider's drain is in force.
    Drain,
    /// It has ended.
    Resume,
}

impl OrderKind {
    /// The word in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Resume => "resume",
        }
    }
}

impl Order {
    /// The order that follows from the one before and the drain on chain.
    #[must_use]
    pub fn next(before: Option<&Self>, drain: Option<&Drain>, epoch: u64, now: UnixSeconds) -> Option<Self> {
        match (before, drain) {
            (Some(o), Some(d)) if o.kind == OrderKind::Drain && o.at == d.ordered_at => {
                // Moved on in steps: each is written down.
                let until = d.until.max(o.until);
                let until = if until < now.plus(600) {
                    now.plus(3600)
                } else {
                    until
                };
                Some(Self { until, ..o.clone() })
            }
            // A drain is in force until resumed; `until` ends only its protection.
            (_, Some(d)) => Some(Self {
                kind: OrderKind::Drain,
                id: id(OrderKind::Drain, epoch, d.ordered_at),
                at: d.ordered_at,
                until: d.until.max(now.plus(3600)),
            }),
            (Some(o), None) if o.kind == OrderKind::Drain => Some(Self {
                kind: OrderKind::Resume,
                id: id(OrderKind::Resume, epoch, now),
                at: now,
                until: now.plus(RESUME_SECONDS),
            }),
            (Some(o), None) if now > o.until => None,
            (o, None) => o.cloned(),
        }
    }
}

fn id(kind: OrderKind, epoch: u64, at: UnixSeconds) -> String {
    let digest = Sha256::digest(format!("{}|{epoch}|{}", kind.as_str(), at.0));
    hex::encode(digest.get(..16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(at: u64) -> Drain {
        Drain {
            ordered_by: "wasm1a".into(),
            ordered_at: UnixSeconds(at),
            until: UnixSeconds(at + 100),
            reason: None,
        }
    }

    #[test]
    fn a_drain_is_one_order_while_it_lasts_and_its_end_another() {
        let now = UnixSeconds(1000);
        let first = Order::next(None, Some(&drain(900)), 7, now).unwrap();
        assert_eq!(first.kind, OrderKind::Drain);
        let later = Order::next(Some(&first), Some(&drain(900)), 7, UnixSeconds(9000)).unwrap();
        assert_eq!(later.id, first.id);
        assert!(later.until > UnixSeconds(9000), "still told while it is in force");
        let again = Order::next(Some(&first), Some(&drain(950)), 7, now).unwrap();
        assert_ne!(again.id, first.id);
        let resume = Order::next(Some(&again), None, 7, now).unwrap();
        assert_eq!(resume.kind, OrderKind::Resume);
        assert_eq!(
            Order::next(Some(&resume), None, 7, UnixSeconds(2000)).unwrap(),
            resume
        );
        assert_eq!(Order::next(Some(&resume), None, 7, resume.until.plus(1)), None);
        assert_eq!(Order::next(None, None, 7, now), None);
    }
}
