//! Events: written and read by the same type, so that contract and relayer cannot drift.
//! On chain the type carries wasmd's prefix `wasm-`; times are whole UNIX seconds.

use std::fmt::Display;
use std::str::FromStr;

use crate::id::{ClusterId, NodeId};
use crate::node::{NodeState, Prior};

/// Nodes of which an event tells the same thing, at least one: an attribute each, all under one key. What one event
/// says at once costs a chain a fifth of what an event for each node costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIds(pub Vec<NodeId>);

impl From<NodeId> for NodeIds {
    fn from(id: NodeId) -> Self {
        Self(vec![id])
    }
}

/// How a field stands among an event's attributes.
trait Field: Sized {
    fn write(self, key: &'static str, out: &mut Vec<(&'static str, String)>);
    fn read<'a>(values: impl Iterator<Item = &'a str>) -> Option<Self>;
}

impl<T: Display + FromStr> Field for T {
    fn write(self, key: &'static str, out: &mut Vec<(&'static str, String)>) {
        out.push((key, self.to_string()));
    }

    fn read<'a>(mut values: impl Iterator<Item = &'a str>) -> Option<Self> {
        values.next()?.parse().ok()
    }
}

impl Field for NodeIds {
    fn write(self, key: &'static str, out: &mut Vec<(&'static str, String)>) {
        out.extend(self.0.into_iter().map(|id| (key, String::from(id))));
    }

    fn read<'a>(values: impl Iterator<Item = &'a str>) -> Option<Self> {
        let ids = values.map(|id| id.parse().ok()).collect::<Option<Vec<_>>>()?;
        (!ids.is_empty()).then_some(Self(ids))
    }
}

/// An event of ours that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Not one of ours.
    #[error("no event type of this contract: {0}")]
    UnknownType(String),
    /// An attribute is absent or unreadable.
    #[error("{event}: attribute {attribute} is absent or unreadable")]
    Attribute {
        /// Type of the event.
        event: &'static str,
        /// Name of the attribute.
        attribute: &'static str,
    },
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $ty:literal { $($(#[$fdoc:meta])* $field:ident : $ft:ty,)* })*) => {
        /// Everything the contract says about its changes.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $name { $($(#[$fdoc])* $field: $ft,)* },)*
        }

        impl Event {
            /// Every event type, without the prefix.
            pub const TYPES: &'static [&'static str] = &[$($ty,)*];

            /// Type, without the prefix.
            #[must_use]
            pub fn ty(&self) -> &'static str {
                match self { $(Self::$name { .. } => $ty,)* }
            }

            /// Attributes in order.
            #[must_use]
            pub fn attributes(&self) -> Vec<(&'static str, String)> {
                self.clone().into_attributes()
            }

            /// Attributes in order.
            #[must_use]
            pub fn into_attributes(self) -> Vec<(&'static str, String)> {
                let mut out = Vec::new();
                match self {
                    $(Self::$name { $($field,)* } => {$($field.write(stringify!($field), &mut out);)*})*
                }
                out
            }

            /// Reads an event back; `ty` with or without the prefix, other attributes are ignored.
            ///
            /// # Errors
            /// [`EventError::UnknownType`] for foreign events.
            pub fn parse<'a>(
                ty: &str,
                attributes: impl Iterator<Item = (&'a str, &'a str)> + Clone,
            ) -> Result<Self, EventError> {
                match ty.strip_prefix("wasm-").unwrap_or(ty) {
                    $($ty => Ok(Self::$name {
                        $($field: {
                            let of_field = attributes.clone().filter(|(k, _)| *k == stringify!($field));
                            Field::read(of_field.map(|(_, v)| v))
                                .ok_or(EventError::Attribute { event: $ty, attribute: stringify!($field) })?
                        },)*
                    }),)*
                    other => Err(EventError::UnknownType(other.chars().take(64).collect())),
                }
            }
        }
    };
}

events! {
    /// One arrow of the lifecycle, of one node or of several in a page.
    Transition = "hpc_node_transition" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Nodes.
        node_id: NodeIds,
        /// State before, `unknown` for a node that was not on record.
        from: Prior,
        /// State after.
        to: NodeState,
        /// Why: `registered`, `heartbeat`, `recovered`, `silence`, `provider`, `agent`, `jobs_done`, `jobs_started`, `deregistered`.
        reason: String,
        /// Block time.
        time: u64,
    }
    /// A registration began a new epoch.
    Registered = "hpc_node_registered" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Node.
        node_id: NodeId,
        /// The new epoch.
        epoch: u64,
        /// Page of its slot.
        page: u16,
        /// Slot in the page.
        slot: u8,
        /// `new`, `rotated` (another key) or `renewed` (the same key, or a deregistered node).
        kind: String,
        /// Block time.
        time: u64,
    }
    /// A provider's drain was ordered.
    Drain = "hpc_node_drain" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Node.
        node_id: NodeId,
        /// Address.
        ordered_by: String,
        /// End of the protection against deregistration.
        until: u64,
    }
    /// A provider's drain ended.
    Resume = "hpc_node_resume" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Node.
        node_id: NodeId,
        /// Address.
        ordered_by: String,
    }
    /// The jobs of a node, or of several in a page, changed their standing.
    Jobs = "hpc_node_jobs" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Nodes.
        node_id: NodeIds,
        /// `at_risk`, `failed` or `normal`.
        status: String,
        /// Block time.
        time: u64,
    }
    /// A node's record was removed after retention.
    Removed = "hpc_node_removed" {
        /// Cluster.
        cluster_id: ClusterId,
        /// Node.
        node_id: NodeId,
        /// Its last epoch.
        epoch: u64,
        /// Block time.
        time: u64,
    }
    /// A batch was worked off.
    Batch = "hpc_batch" {
        /// Reports accepted.
        accepted: u32,
        /// Reports refused.
        refused: u32,
    }
    /// A cluster changed.
    ClusterChange = "hpc_cluster" {
        /// Cluster.
        cluster_id: ClusterId,
        /// `created`, `updated`, `activated`, `deactivated`, `closed`, `owner_proposed`, `owner_changed`, `task_key_set`.
        action: String,
        /// Address.
        by: String,
        /// JSON of what holds from now on: of `created` and `updated` the fields of the cluster, of `owner_*` the
        /// address (`null`: a proposal withdrawn), of `task_key_set` the key, else `null`.
        value: String,
    }
    /// Parameters or administration changed.
    Admin = "hpc_admin" {
        /// `instantiated`, `params_updated`, `admin_proposed`, `admin_changed`, `registrations_paused`, `registrations_resumed`, `migrated`.
        action: String,
        /// Address.
        by: String,
        /// JSON of what holds from now on: of `instantiated` admin and parameters, of `params_updated` all parameters, of
        /// `admin_*` the address (`null`: a proposal withdrawn), of `migrated` the version, else `null`.
        value: String,
    }
    /// A digest was anchored.
    Anchored = "hpc_anchor" {
        /// Cluster.
        cluster_id: ClusterId,
        /// What it is of.
        kind: String,
        /// Lower-case hex SHA-256.
        digest: String,
    }
}

impl Event {
    /// What it tells of each node, one event a node; of an event that is of one node, or of none, itself.
    #[must_use]
    pub fn of_each_node(&self) -> Vec<Self> {
        let (Self::Transition { node_id, .. } | Self::Jobs { node_id, .. }) = self else {
            return vec![self.clone()];
        };
        let of_one = |id: &NodeId| {
            let mut one = self.clone();
            if let Self::Transition { node_id, .. } | Self::Jobs { node_id, .. } = &mut one {
                *node_id = id.clone().into();
            }
            one
        };
        node_id.0.iter().map(of_one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let event = Event::Transition {
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            node_id: NodeIds(vec![
                "node-hpc1-compute-042".parse().unwrap(),
                "node-hpc1-compute-043".parse().unwrap(),
            ]),
            from: Prior(Some(NodeState::Active)),
            to: NodeState::Stale,
            reason: "silence".into(),
            time: 1_769_781_900,
        };
        let attributes = event.clone().into_attributes();
        assert_eq!(attributes.len(), 7, "an attribute for each node");
        let read = Event::parse(
            "wasm-hpc_node_transition",
            attributes.iter().map(|(k, v)| (*k, v.as_str())),
        );
        assert_eq!(read.as_ref(), Ok(&event));
        let each = event.of_each_node();
        let nodes = ["node-hpc1-compute-042", "node-hpc1-compute-043"];
        assert_eq!(each.len(), 2);
        for (one, node) in each.iter().zip(nodes) {
            assert!(one.attributes().contains(&("node_id", node.to_owned())));
            assert_eq!(one.of_each_node(), std::slice::from_ref(one));
        }
    }

    #[test]
    fn a_foreign_event_is_told_apart_from_a_broken_one() {
        assert!(matches!(
            Event::parse("wasm-other", [].into_iter()),
            Err(EventError::UnknownType(_))
        ));
        let no_node = [
            ("cluster_id", "hpc-cluster-1"),
            ("status", "normal"),
            ("time", "1"),
        ];
        assert!(matches!(
            Event::parse("hpc_node_jobs", no_node.into_iter()),
            Err(EventError::Attribute {
                attribute: "node_id",
                ..
            })
        ));
        assert!(matches!(
            Event::parse("hpc_batch", [("accepted", "1")].into_iter()),
            Err(EventError::Attribute {
                attribute: "refused",
                ..
            })
        ));
    }
}
