//! History from events alone: what an indexer knows that never reads the store.

use std::collections::{BTreeMap, BTreeSet};

use hpc_schema::node::{NodeState, table};
use hpc_schema::registry::{Event, JobsStatus, Params};

use crate::common::stored::Stored;

/// A node, told by events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) state: NodeState,
    pub(crate) epoch: u64,
    pub(crate) place: (u16, u8),
    pub(crate) drain: bool,
    pub(crate) jobs: JobsStatus,
}

/// A cluster, told by events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldCluster {
    pub(crate) active: bool,
    pub(crate) owner: String,
    /// As it is stored.
    info: serde_json::Value,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Story {
    pub(crate) clusters: BTreeMap<String, ToldCluster>,
    pub(crate) nodes: BTreeMap<(String, String), Told>,
    pub(crate) admin: String,
    pub(crate) paused: bool,
    pub(crate) proposed_admin: Option<String>,
    pub(crate) params: Params,
    anchors: BTreeSet<(String, String, String)>,
    epoch: u64,
}

thread_local! {
    /// Arrows of the committed table, as events name them.
    static ARROWS: BTreeSet<(String, NodeState, String)> = table::arrows(&table::rows())
        .into_iter()
        .map(|t| {
            let from = t.from.map_or("unknown", NodeState::as_str).to_owned();
            (from, t.to, t.reason.as_str().to_owned())
        })
        .collect();
}

impl Story {
    pub(crate) fn hear(&mut self, event: Event, now: u64) {
        match event {
            Event::Registered {
                cluster_id,
                node_id,
                epoch,
                page,
                slot,
                kind,
                time,
            } => {
                assert!(epoch > self.epoch, "epochs are never reused");
                self.epoch = epoch;
                assert_eq!(time, now);
                let key = (cluster_id.to_string(), node_id.to_string());
                let known = self.nodes.get_mut(&key);
                assert_eq!(kind == "new", known.is_none());
                if let Some(node) = known {
                    assert_eq!(node.place, (page, slot), "a node keeps its slot");
                    node.epoch = epoch;
                } else {
                    let node = Told {
                        // Its arrow from UNKNOWN follows.
                        state: NodeState::Deregistered,
                        epoch,
                        place: (page, slot),
                        drain: false,
                        jobs: JobsStatus::Normal,
                    };
                    self.nodes.insert(key, node);
                }
            }
            Event::Transition {
                cluster_id,
                node_id,
                from,
                to,
                reason,
                time,
            } => {
                assert_eq!(time, now);
                let arrow = (from.to_string(), to, reason);
                assert!(ARROWS.with(|a| a.contains(&arrow)), "no such arrow: {arrow:?}");
                for node_id in &node_id.0 {
                    let node = self.node(&cluster_id, node_id);
                    match from.0 {
                        None => assert_eq!(to, NodeState::Pending),
                        Some(from) => assert_eq!(node.state, from, "arrows of {node_id} chain"),
                    }
                    if node.state == NodeState::Deregistered {
                        node.jobs = JobsStatus::Normal;
                    }
                    node.state = to;
                    node.drain &= to != NodeState::Deregistered;
                }
            }
            Event::Drain {
                cluster_id, node_id, ..
            } => self.node(&cluster_id, &node_id).drain = true,
            Event::Resume {
                cluster_id, node_id, ..
            } => self.node(&cluster_id, &node_id).drain = false,
            Event::Jobs {
                cluster_id,
                node_id,
                status,
                time,
            } => {
                assert_eq!(time, now);
                let status = match status.as_str() {
                    "normal" => JobsStatus::Normal,
                    "at_risk" => JobsStatus::AtRisk,
                    "failed" => JobsStatus::Failed,
                    other => panic!("unknown standing {other}"),
                };
                for node_id in &node_id.0 {
                    let node = self.node(&cluster_id, node_id);
                    assert_ne!(node.jobs, status, "told only when it changes");
                    node.jobs = status;
                }
            }
            Event::Removed {
                cluster_id,
                node_id,
                epoch,
                ..
            } => {
                let gone = self
                    .nodes
                    .remove(&(cluster_id.to_string(), node_id.to_string()))
                    .unwrap();
                assert_eq!((gone.state, gone.epoch), (NodeState::Deregistered, epoch));
            }
            Event::Batch { .. } => {}
            Event::ClusterChange {
                cluster_id,
                action,
                by,
                value,
            } => {
                let value = serde_json::from_str(&value).unwrap();
                self.cluster(cluster_id.as_str(), &action, by, value);
            }
            Event::Admin { action, by, value } => match action.as_str() {
                "admin_changed" => {
                    assert_eq!(value, format!("{by:?}"));
                    (self.admin, self.proposed_admin) = (by, None);
                }
                "admin_proposed" => self.proposed_admin = serde_json::from_str(&value).unwrap(),
                "params_updated" => self.params = serde_json::from_str(&value).unwrap(),
                "registrations_paused" => self.paused = true,
                "registrations_resumed" => self.paused = false,
                "migrated" => {}
                other => panic!("unknown action {other}"),
            },
            Event::Anchored {
                cluster_id,
                kind,
                digest,
            } => assert!(self.anchors.insert((cluster_id.to_string(), kind, digest))),
        }
    }

    fn node(
        &mut self,
        cluster_id: &hpc_schema::id::ClusterId,
        node_id: &hpc_schema::id::NodeId,
    ) -> &mut Told {
        self.nodes
            .get_mut(&(cluster_id.to_string(), node_id.to_string()))
            .expect("an event of a node on record")
    }

    fn cluster(&mut self, id: &str, action: &str, by: String, value: serde_json::Value) {
        if action == "created" {
            let new = ToldCluster {
                active: false,
                owner: by,
                info: value,
            };
            assert!(self.clusters.insert(id.to_owned(), new).is_none());
            return;
        }
        let cluster = self
            .clusters
            .get_mut(id)
            .expect("a change of a cluster on record");
        match action {
            "activated" | "deactivated" => {
                assert_ne!(cluster.active, action == "activated");
                cluster.active = action == "activated";
            }
            "owner_changed" => {
                assert_eq!(value, by);
                cluster.info["owner"] = value;
                cluster.info.as_object_mut().unwrap().remove("proposed_owner");
                cluster.owner = by;
            }
            "closed" => {
                assert!(!cluster.active && !self.nodes.keys().any(|(c, _)| c == id));
                self.clusters.remove(id);
                self.anchors.retain(|(c, ..)| c != id);
            }
            "updated" => cluster.info = value,
            "task_key_set" => cluster.info["task_public_key"] = value,
            "owner_proposed" if value.is_null() => {
                cluster.info.as_object_mut().unwrap().remove("proposed_owner");
            }
            "owner_proposed" => cluster.info["proposed_owner"] = value,
            other => panic!("unknown action {other}"),
        }
    }

    /// The store says what the events said, no more and no less.
    pub(crate) fn compare(&self, all: &Stored) {
        let active: BTreeMap<_, _> = all.clusters.values().map(|c| (c.id.clone(), c.active)).collect();
        let told: BTreeMap<_, _> = self
            .clusters
            .iter()
            .map(|(id, c)| (id.clone(), c.active))
            .collect();
        assert_eq!(active, told);
        let infos: BTreeMap<_, _> = self
            .clusters
            .iter()
            .map(|(id, c)| (id.clone(), c.info.clone()))
            .collect();
        assert_eq!(all.infos, infos, "what rarely changes, and the events");
        let on_record: BTreeMap<_, _> = all
            .slots
            .iter()
            .filter_map(|((index, place), slot)| {
                let record = slot.record?;
                let told = Told {
                    state: record.state,
                    epoch: slot.identity.as_ref()?["epoch"].as_u64()?,
                    place: *place,
                    drain: record.drain,
                    jobs: record.jobs_status(),
                };
                Some(((all.ids[index].clone(), slot.id.clone()?), told))
            })
            .collect();
        assert_eq!(on_record, self.nodes, "the store and the events");
        assert_eq!(self.epoch, all.epoch);
        let anchors: usize = all
            .anchor_counts
            .iter()
            .filter(|(index, _)| all.ids.contains_key(index))
            .map(|(_, n)| *n as usize)
            .sum();
        assert_eq!(anchors, self.anchors.len());
    }
}
