use hpc_schema::gateway::{
    CertificateRequest, CertificateResponse, ChallengeResponse, HeartbeatResponseBody, REGISTER_PATH,
    RecoverRequest, RegisterPending, RegisterRequest, RegisterResponse,
};
use hpc_schema::heartbeat::HeartbeatRequest;
use hpc_schema::id::NodeId;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::operation::Operation;
use crate::admin::http::Shape;

/// A path of the gateway; all of them take POST.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPath {
    /// With `{node_id}` where the node's id stands.
    pub path: &'static str,
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
        id: "register",
        summary: "Register a node, or rotate its key, with a token; repeat the same request until 200",
        mutual: false,
        also: &[409],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/heartbeat",
        id: "heartbeat",
        summary: "A node's signed heartbeat",
        mutual: true,
        also: &[],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate",
        id: "renewCertificate",
        summary: "Renew a certificate that still counts",
        mutual: true,
        also: &[404],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate/challenge",
        id: "certificateChallenge",
        summary: "What the agent signs to recover a certificate that counts no more",
        mutual: false,
        also: &[404],
    },
    GatewayPath {
        path: "/api/v1/hpc/nodes/{node_id}/certificate/recover",
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
                Some(schema::<HeartbeatRequest>(generator)),
                schema::<HeartbeatResponseBody>(generator),
            ),
            "renewCertificate" => (
                Some(schema::<CertificateRequest>(generator)),
                schema::<CertificateResponse>(generator),
            ),
            "certificateChallenge" => (None, schema::<ChallengeResponse>(generator)),
            _ => (
                Some(schema::<RecoverRequest>(generator)),
                schema::<CertificateResponse>(generator),
            ),
        };
        let mut answers = vec![(200, "Answered", None)];
        if known.id == "register" {
            let pending = schema::<RegisterPending>(generator);
            answers.push((
                202,
                "The chain has not confirmed it; repeat the same request",
                Some(pending),
            ));
        }
        let operation = Operation {
            path: known.path.to_owned(),
            method: "post",
            tag: "gateway",
            id: known.id,
            summary: known.summary.to_owned(),
            security: known.mutual.then_some("node_certificate"),
            shape: Shape {
                path: known.path.contains('{').then(|| OfNode::json_schema(generator)),
                query: None,
                body,
                answer,
            },
            answers,
            problems: ALWAYS.iter().chain(known.also).copied().collect(),
        };
        super::add(paths, &operation);
    }
}
