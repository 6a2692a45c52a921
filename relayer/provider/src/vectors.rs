//! The heartbeats of `schema/vectors`, for tests.

use hpc_schema::heartbeat::{Admission, HeartbeatRequest, Registered};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::JobIds;
use hpc_schema::report::Tag;
use hpc_schema::time::UnixSeconds;
use serde_json::Value;

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
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&Value, HeartbeatRequest, Admission<'_>)> {
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
}
