//! What is asked of a world after every message.

use hpc_registry::contract;
use hpc_registry::error::ContractError;
use hpc_schema::node::lifecycle::effective;
use hpc_schema::registry::{NodesAnswer, QueryMsg};
use hpc_schema::time::UnixSeconds;

use crate::common::{recount, stored};
use crate::invariants;
use crate::world::{Progress, World};

impl World {
    /// Within an epoch sequences rise and time never runs back.
    pub(crate) fn progress(&mut self) {
        let all = stored::Stored::read(&self.chain.deps.storage.map);
        let mut progress = Progress::new();
        for (at, slot) in &all.slots {
            let Some(record) = slot.record else { continue };
            let epoch = slot.identity.as_ref().unwrap()["epoch"].as_u64().unwrap();
            if let Some((old_epoch, sequence, heartbeat)) = self.progress.get(at)
                && *old_epoch == epoch
            {
                assert!(record.sequence >= *sequence && record.last_heartbeat >= *heartbeat);
            }
            progress.insert(*at, (epoch, record.sequence, record.last_heartbeat));
        }
        self.progress = progress;
    }

    pub(crate) fn check(&mut self) {
        let all = invariants::check(&self.chain.deps.storage.map);
        self.story.compare(&all);
        self.answers(&all);
        self.progress();
        let config: hpc_schema::registry::ConfigAnswer =
            self.chain.query(serde_json::json!({"config": {}})).unwrap();
        assert_eq!(
            (config.admin, config.proposed_admin, config.registrations_paused),
            (
                self.story.admin.clone(),
                self.story.proposed_admin.clone(),
                self.story.paused
            )
        );
        let params: hpc_schema::registry::Params =
            self.chain.query(serde_json::json!({"params": {}})).unwrap();
        assert_eq!(params, self.story.params);
    }

    /// Effective sums and a list in pages say what the records say.
    fn answers(&self, all: &stored::Stored) {
        let now = UnixSeconds(self.chain.now());
        for (index, cluster) in &all.clusters {
            let seen = |record| effective(record, &self.story.params, now);
            let told = self.chain.aggregate(&cluster.id).effective.unwrap();
            let expected = invariants::of_records(all, *index, cluster.active, seen);
            assert_eq!(recount::by_name(told), expected, "effective sums");

            let slots = all.slots.iter().filter(|((i, _), _)| i == index);
            let expected: Vec<_> = slots
                .filter_map(|(_, s)| Some((s.id.clone()?, seen(s.record?).state)))
                .collect();
            let limit = if cluster.slots > 64 { 30 } else { 3 };
            let (mut listed, mut cursor) = (Vec::new(), None);
            loop {
                let answer: NodesAnswer = self
                    .chain
                    .query(serde_json::json!({"nodes": {
                        "filter": {"cluster_id": cluster.id}, "limit": limit, "start_after": cursor}}))
                    .unwrap();
                listed.extend(answer.nodes.into_iter().map(|n| (n.node_id.to_string(), n.state)));
                cursor = answer.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(listed, expected, "nodes, page by page");
        }
    }

    /// A question is answered or refused; it never panics, and never finds the store wanting.
    pub(crate) fn ask(&self, msg: &QueryMsg) {
        match contract::query(self.chain.deps.as_ref(), self.chain.env.clone(), self.cast(msg)) {
            Ok(answer) => {
                let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
                assert!(answer.is_object());
            }
            Err(error) => refused(&error),
        }
    }
}

/// A refusal is one of the protocol's, never a complaint about the store.
pub(crate) fn refused(error: &ContractError) {
    assert!(
        !matches!(error, ContractError::Corrupt { .. }),
        "the store cannot be read: {error}"
    );
    match error.code() {
        Some(code) => assert!(error.to_string().ends_with(code.remedy())),
        None => assert!(error.to_string().starts_with("malformed: ")),
    }
}
