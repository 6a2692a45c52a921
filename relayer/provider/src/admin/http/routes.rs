use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;

use super::answer::Failure;
use super::call::{Endpoint, Pace, Spec, endpoint};
use super::guard::guard;
use super::{Api, act, list, look, secrets, slots};
use crate::audit::Role;

/// What every path begins with.
pub(crate) const PREFIX: &str = "/api/v1/admin";

/// What only asks the store.
const SOON: Pace = Pace::Soon;
/// What waits for a block.
const A_BLOCK: Pace = Pace::Block;
/// What waits for news.
const NEWS: Pace = Pace::News;

/// A line: method, path, name, role, what it may be answered beside [`super::ALWAYS`], how long it may take, what does it,
/// and what it is for.
macro_rules! table {
    ($($method:literal $path:literal $id:literal $role:ident [$($also:literal)*] $within:ident $run:path: $summary:literal;)*) => {
        /// Every operation.
        pub(crate) fn endpoints() -> Vec<Endpoint> {
            vec![$(endpoint(
                Spec {
                    method: $method,
                    path: $path,
                    id: $id,
                    summary: $summary,
                    role: Role::$role,
                    also: &[$($also),*],
                    pace: $within,
                },
                $run,
            )),*]
        }
    };
}

table! {
    "get" "/openapi.json" "openapi" Viewer [] SOON look::document: "This document";
    "get" "/status" "status" Viewer [] SOON look::status: "Whether the daemon works, and what waits";
    "get" "/nodes" "listNodes" Viewer [] SOON list::nodes: "Nodes with what was last received and is last on chain";
    "get" "/nodes/{node_id}" "showNode" Viewer [404 409] SOON look::node: "One node, its newest events and orders, and how its newest reports ended";
    "get" "/nodes/{node_id}/proof" "proveHeartbeat" Viewer [404 409] SOON look::proof: "A file that proves a heartbeat on chain to anybody";
    "post" "/nodes/{node_id}/disable" "disableNode" Operator [404 409] SOON act::disable: "Refuse a node's traffic within a second";
    "post" "/nodes/{node_id}/enable" "enableNode" Operator [404 409] SOON act::enable: "Take a node's traffic again";
    "post" "/nodes/{node_id}/drain" "drainNode" Operator [404 409] A_BLOCK act::drain: "Record a drain on chain";
    "post" "/nodes/{node_id}/resume" "resumeNode" Operator [404 409] A_BLOCK act::resume: "End a drain on chain";
    "get" "/alerts" "listAlerts" Viewer [] SOON list::alerts: "What is wrong, or has ended and is still to be told";
    "get" "/commands" "listCommands" Viewer [] SOON list::commands: "Orders, newest first";
    "post" "/commands" "sendCommand" Operator [404 409] SOON act::send: "Order something of a node";
    "get" "/commands/{command_id}" "showCommand" Viewer [404] SOON look::command: "One order and what became of it";
    "post" "/commands/{command_id}/cancel" "cancelCommand" Operator [404 409] SOON act::cancel: "Take back an order that has not been acknowledged";
    "get" "/tasks" "listTasks" Viewer [] SOON list::tasks: "Tasks, newest first";
    "post" "/tasks" "submitTask" Operator [404 409] SOON act::submit_task: "Submit a task of the catalogue; a node that waits has it at once";
    "get" "/tasks/{task_id}" "showTask" Viewer [404 409] SOON look::task: "One task, its phases and its signed result";
    "get" "/tasks/{task_id}/wait" "waitTask" Viewer [404 409] NEWS look::wait: "The same as soon as there is news of it";
    "post" "/tasks/{task_id}/cancel" "cancelTask" Operator [404 409] SOON act::cancel_task: "Take a task back; what a node has done of it is undone";
    "post" "/tasks/{task_id}/approve" "approveTask" Admin [404 409] SOON act::approve_task: "Let a task be delivered that waits for approval";
    "get" "/slots" "listSlots" Viewer [] SOON list::slots: "Slots of nodes and who has them";
    "post" "/slots" "addSlot" Operator [404 409] SOON slots::add: "Put a candidate on record that discovery does not find";
    "post" "/nodes/{node_id}/slots/{slot_id}/approve" "approveSlot" Admin [404 409] SOON slots::approve: "Approve a slot; its node wipes it, and proof of that makes it free";
    "post" "/nodes/{node_id}/slots/{slot_id}/retire" "retireSlot" Admin [404 409] SOON slots::retire: "Let a slot not be let any more";
    "get" "/node-tokens" "listNodeTokens" Viewer [] SOON list::tokens: "Registration tokens of one node each; never the tokens themselves";
    "post" "/node-tokens" "createNodeTokens" Operator [] SOON secrets::tokens: "Make a registration token for each of up to 5000 nodes, or for none";
    "post" "/node-tokens/{jti}/revoke" "revokeToken" Operator [404] SOON act::revoke_token: "Take back a token or a join token";
    "get" "/join-tokens" "listJoinTokens" Viewer [] SOON list::join_tokens: "Join tokens and how many nodes have used them";
    "post" "/join-tokens" "createJoinToken" Operator [] SOON secrets::join_token: "Make a token with which several nodes of a cluster register";
    "get" "/registrations" "listWaiting" Viewer [] SOON list::waiting: "Registrations that wait for approval";
    "post" "/registrations/{node_id}/approve" "approveRegistration" Operator [404 409] SOON act::approve: "Let a node that waits register";
    "post" "/registrations/{node_id}/reject" "rejectRegistration" Operator [404 409] SOON act::reject: "Refuse a node that waits: its key needs a token of its own";
    "get" "/certificates" "listCertificates" Viewer [] SOON list::certificates: "Certificates of nodes, newest first";
    "post" "/certificates/revoke" "revokeCertificates" Operator [404 409] SOON act::revoke_certificates: "Revoke one certificate or all of a node";
    "post" "/reload" "reload" Operator [] SOON act::reload: "Read certificates, trusted CAs and configuration anew";
    "get" "/admin-tokens" "listAdminTokens" Admin [] SOON list::credentials: "Credentials of this listener; never the secrets";
    "post" "/admin-tokens" "createAdminToken" Admin [409] SOON secrets::credential: "Make a credential";
    "post" "/admin-tokens/{id}/rotate" "rotateAdminToken" Admin [404 409] SOON secrets::rotate: "Make a credential in place of another";
    "post" "/admin-tokens/{id}/revoke" "revokeAdminToken" Admin [404] SOON act::revoke_credential: "Take a credential back at once";
    "get" "/audit" "readAudit" Admin [] SOON list::audit: "Rows of the audit log, oldest first";
}

/// Every path of the listener.
pub(super) fn router(api: Arc<Api>) -> Router {
    let mut admin = Router::new();
    for endpoint in endpoints() {
        admin = admin.route(&format!("{PREFIX}{}", endpoint.spec.path), endpoint.service);
    }
    admin
        .layer(from_fn_with_state(Arc::clone(&api), guard))
        .fallback(|| async { Failure::new(404, Refusal::whole(Code::Malformed, "there is no such path")) })
        .method_not_allowed_fallback(|| async {
            Failure::new(
                405,
                Refusal::whole(Code::Malformed, "this path does not take this method"),
            )
        })
        .with_state(api)
}
