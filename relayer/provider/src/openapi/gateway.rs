use hpc_schema::gateway::{
    CertificateRequest, CertificateResponse, ChallengeResponse, HeartbeatResponseBody, REGISTER_PATH,
    RecoverRequest, RegisterPending, RegisterRequest, RegisterResponse,
};
use hpc_schema::heartbeat::HeartbeatRequest;
use hpc_schema::id::{NodeId, TaskId};
use hpc_schema::task::{ProgressRequest, TaskResult, WaitAnswer};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::operation::{Content, Operation};
use crate::admin::http::Shape;

/// A path of the gateway.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPath {
    /// With `{node_id}` where the node's id stands.
    pub path: &'static str,
    /// `post`, but for what is waited for.
    pub method: &'static str,
    id: &'static str,
    summary: &'static str,
    /// By the node's certificate; else whoever knows the CA may ask.
    pub mutual: bool,
    /// Beside those that any request may meet.
    also: &'static [u16],
}

/// Every path of the gateway.
pub const GATEWAY_PATHS: &[GatewayPath] = &[
    GatewayPath {
        path: REGISTER_PATH,
        method: "post",
        id: "register",
        summary: "Register a node, or rotate its key, with a token; repeat the same request until 200",
        mutual: false,
        also: &[409],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/heartbeat",
        method: "post",
        id: "heartbeat",
        summary: "A node's signed heartbeat",
        mutual: true,
        also: &[],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate",
        method: "post",
        id: "renewCertificate",
        summary: "Renew a certificate that still counts",
        mutual: true,
        also: &[404],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate/challenge",
        method: "post",
        id: "certificateChallenge",
        summary: "What the agent signs to recover a certificate that counts no more",
        mutual: false,
        also: &[404],
    },
    GatewayPath {
        path: "/internal/v1/nodes/{node_id}/tasks/wait",
        method: "get",
        id: "waitForTasks",
        summary: "Tasks that are signed for the node, as soon as there are any; 204 if none come in time",
        mutual: true,
        also: &[404, 409],
    },
    GatewayPath {
        path: "/internal/v1/nodes/{node_id}/tasks/{task_id}/progress",
        method: "post",
        id: "taskProgress",
        summary: "How far a task is",
        mutual: true,
        also: &[404, 409],
    },
    GatewayPath {
        path: "/internal/v1/nodes/{node_id}/tasks/{task_id}/result",
        method: "post",
        id: "taskResult",
        summary: "How a task ended, signed by the agent's key",
        mutual: true,
        also: &[404, 409],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate/recover",
        method: "post",
        id: "recoverCertificate",
        summary: "Recover a certificate with the agent's key",
        mutual: false,
        also: &[404],
    },
];

/// Problems that any request may be answered with.
const ALWAYS: &[u16] = &[400, 401, 403, 408, 413, 415, 429, 431, 503];

/// The path of a node.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema")]
struct OfNode {
    /// Its id.
    node_id: NodeId,
}

/// The path of a task.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema")]
struct OfTask {
    /// The node.
    node_id: NodeId,
    /// Its task.
    task_id: TaskId,
}

/// How long a node waits.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema")]
struct Wait {
    /// Seconds; more count as 120, none as 30.
    #[schemars(range(min = 0, max = 120))]
    wait_seconds: Option<u32>,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) fn add(paths: &mut Map<String, Value>, generator: &mut SchemaGenerator) {
    for known in GATEWAY_PATHS {
        let (body, answer) = match known.id {
            "register" => (
                Some(schema::<RegisterRequest>(generator)),
                schema::<RegisterResponse>(generator),
            ),
            "heartbeat" => (
                Some(schema::<HeartbeatRequest<'_>>(generator)),
                schema::<HeartbeatResponseBody>(generator),
            ),
            "renewCertificate" => (
                Some(schema::<CertificateRequest>(generator)),
                schema::<CertificateResponse>(generator),
            ),
            "certificateChallenge" => (None, schema::<ChallengeResponse>(generator)),
            "waitForTasks" => (None, schema::<WaitAnswer>(generator)),
            "taskProgress" => (Some(schema::<ProgressRequest>(generator)), Schema::default()),
            "taskResult" => (Some(schema::<TaskResult>(generator)), Schema::default()),
            _ => (
                Some(schema::<RecoverRequest>(generator)),
                schema::<CertificateResponse>(generator),
            ),
        };
        let said = known.id.starts_with("task");
        let content = if said { Content::Nothing } else { Content::Usual };
        let mut answers = vec![(200, "Answered", content)];
        if known.id == "register" {
            let pending = schema::<RegisterPending>(generator);
            answers.push((
                202,
                "The chain has not confirmed it; repeat the same request",
                Content::Other(pending),
            ));
        }
        let waits = known.id == "waitForTasks";
        if waits {
            answers.push((204, "Nothing came in time", Content::Nothing));
        }
        let of_task = known.path.contains("{task_id}");
        let operation = Operation {
            path: known.path.to_owned(),
            method: known.method,
            tag: "gateway",
            id: known.id,
            summary: known.summary.to_owned(),
            security: known.mutual.then_some("node_certificate"),
            shape: Shape {
                path: known.path.contains('{').then(|| {
                    if of_task {
                        OfTask::json_schema(generator)
                    } else {
                        OfNode::json_schema(generator)
                    }
                }),
                query: waits.then(|| Wait::json_schema(generator)),
                body,
                answer,
            },
            answers,
            problems: ALWAYS.iter().chain(known.also).copied().collect(),
        };
        super::add(paths, &operation);
    }
}
