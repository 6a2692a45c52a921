use hpc_schema::command::CommandType;
use sha2::{Digest as _, Sha256};

use super::row::{BY_CHAIN, NewCommand};
use super::write::put;
use crate::db::Conn;
use crate::registry::{Node, OrderKind};
use crate::store::StoreError;

/// Puts the order that follows from a node's drain on chain on record, so that it is told until acknowledged. The
/// same order has the same id each time.
///
/// # Errors
/// If the store fails.
pub async fn record_order(conn: &mut Conn, node: &Node) -> Result<(), StoreError> {
    let Some(order) = &node.contact.order else {
        return Ok(());
    };
    let kind = match order.kind {
        OrderKind::Drain => CommandType::Drain,
        OrderKind::Resume => CommandType::Resume,
    };
    let reason = node.chain.drain.as_ref().and_then(|d| d.reason.clone());
    let parameters = match (kind, reason) {
        (CommandType::Drain, Some(reason)) => serde_json::json!({ "reason": reason }).to_string(),
        _ => "{}".to_owned(),
    };
    let digest = Sha256::digest(format!("nonce|{}", order.id));
    let new = NewCommand {
        command_id: order.id.clone(),
        cluster_id: node.cluster_id.clone(),
        node_id: node.node_id.clone(),
        kind,
        parameters,
        nonce: digest.first_chunk().copied().unwrap_or_default(),
        issued_by: BY_CHAIN.to_owned(),
        issued_at: order.at,
        deadline: order.until,
    };
    put(conn, &new).await
}
