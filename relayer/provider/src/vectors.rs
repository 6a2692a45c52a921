//! The heartbeats of `schema/vectors`, for tests.

use hpc_schema::heartbeat::{Admission, HeartbeatRequest, Registered};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::{Cluster, JobIds, RelayView};
use hpc_schema::report::Tag;
use hpc_schema::time::UnixSeconds;
use serde_json::Value;

use crate::identity::PeerIdentity;
use crate::registry::{Registry, scene};

/// All cases, and of whom they are.
pub(crate) struct Vectors {
    file: Value,
    cluster: ClusterId,
    node: NodeId,
    tag: Tag,
    pub(crate) key: AgentKey,
}

impl Vectors {
    pub(crate) fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/vectors/heartbeat.json");
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |key: &str| file["context"][key].as_str().unwrap();
        let cluster = text("cluster_id").parse().unwrap();
        let node = text("node_id").parse().unwrap();
        let epoch = file["context"]["epoch"].as_u64().unwrap();
        let tag = Tag::derive(text("chain_id"), text("contract"), &cluster, &node, epoch);
        let key = text("public_key").parse().unwrap();
        Self {
            file,
            cluster,
            node,
            tag,
            key,
        }
    }

    /// Those whose body can be read, with what they are judged against.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&Value, HeartbeatRequest<'_>, Admission<'_>)> {
        self.file["cases"].as_array().unwrap().iter().filter_map(|case| {
            let Ok(request) = HeartbeatRequest::parse(case["body"].as_str().unwrap().as_bytes()) else {
                assert_eq!(case["result"]["malformed"], true, "{case}");
                return None;
            };
            let against = Admission {
                path_node_id: self.node.as_str(),
                certificate_node_id: &self.node,
                certificate_cluster_id: &self.cluster,
                registered: Some(Registered {
                    key: &self.key,
                    tag: &self.tag,
                    job_ids: JobIds::Plain,
                }),
                now: UnixSeconds(case["now"].as_u64().unwrap()),
            };
            Some((case, request, against))
        })
    }

    /// What a gateway has that read their node from the chain and accepted nothing of it.
    pub(crate) fn registry(&self) -> Registry {
        let context = &self.file["context"];
        let text = |key: &str| context[key].as_str().unwrap();
        let registry = Registry::new(text("chain_id"), text("contract"));
        registry.set_cluster(Cluster {
            cluster_id: self.cluster.clone(),
            owner: "wasm1owner".into(),
            proposed_owner: None,
            operators: Vec::new(),
            name: String::new(),
            region: None,
            gateway_endpoint: None,
            task_public_key: None,
            job_ids: JobIds::Plain,
            active: true,
            pages: 1,
            created_at: UnixSeconds(1),
            deposit: None,
        });
        let node = RelayView {
            node_id: self.node.clone(),
            epoch: context["epoch"].as_u64().unwrap(),
            agent_pubkey: self.key,
            ..scene::view()
        };
        registry.set_node(&self.cluster, node, 1, UnixSeconds(1)).unwrap();
        registry
    }

    /// Whom their node's certificate names.
    pub(crate) fn peer(&self) -> PeerIdentity {
        PeerIdentity {
            cluster_id: self.cluster.clone(),
            node_id: self.node.clone(),
            epoch: self.file["context"]["epoch"].as_u64(),
            serial: "ab".into(),
            fingerprint: "cd".into(),
            issuer: "CN=Site".into(),
            not_before: UnixSeconds(0),
            not_after: UnixSeconds(u64::MAX),
        }
    }
}
