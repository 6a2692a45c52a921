use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::enrol::{self, CertificateRow, Which};
use crate::store::StoreError;

/// Which certificates are meant.
#[derive(Debug, Clone, Copy)]
pub enum Certificates<'a> {
    /// The one of this serial number, hex.
    Serial(&'a str),
    /// All of a node; the cluster need not be named if only one has a node of this id.
    Node(&'a NodeId, Option<&'a ClusterId>),
}

impl<'a> Certificates<'a> {
    /// By either; the other must be left out.
    ///
    /// # Errors
    /// If both or neither is named.
    pub fn either(
        serial: Option<&'a str>,
        node: Option<&'a NodeId>,
        cluster: Option<&'a ClusterId>,
    ) -> Result<Self, AdminError> {
        match (serial, node) {
            (Some(serial), None) => Ok(Self::Serial(serial)),
            (None, Some(node)) => Ok(Self::Node(node, cluster)),
            _ => Err(AdminError::field(
                Code::InvalidField,
                "serial",
                "name either a serial or a node_id",
            )),
        }
    }
}

impl Admin {
    /// Certificates of one node or all, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn certificates(
        &self,
        node: Option<&NodeId>,
        cluster: Option<&ClusterId>,
        limit: u32,
    ) -> Result<Vec<CertificateRow>, StoreError> {
        enrol::certificates(self.store.reader(), node, cluster, limit).await
    }

    /// Revokes certificates; how many counted until now. It takes effect on open connections within a second.
    ///
    /// # Errors
    /// If there was none.
    pub async fn revoke_certificates(&self, by: &Actor, what: Certificates<'_>) -> Result<u64, AdminError> {
        let target = match what {
            Certificates::Serial(serial) => format!("certificate {serial}"),
            Certificates::Node(node, _) => format!("node {node}"),
        };
        let mut act = Act::begin(&self.store, by, "certificate.revoke", target).await?;
        let done = self.revoke_in(&mut act, what).await;
        let count = done.as_ref().copied().unwrap_or(0);
        act.end(done, json!({ "certificates": count })).await
    }

    async fn revoke_in(&self, act: &mut Act, what: Certificates<'_>) -> Result<u64, AdminError> {
        let now = clock::now();
        let count = match what {
            Certificates::Serial(serial) => {
                enrol::revoke_certificates(act.conn(), Which::Serial(&serial.to_lowercase()), now).await?
            }
            Certificates::Node(node, cluster) => {
                let known = self.resolve(node, cluster).await?;
                act.aim(super::node::target(&known.cluster_id, &known.node_id));
                let which = Which::Node(&known.cluster_id, &known.node_id);
                enrol::revoke_certificates(act.conn(), which, now).await?
            }
        };
        if count == 0 {
            let what = "no such certificate counts (virtengine-provider certificate list)";
            return Err(AdminError::field(Code::InvalidState, "certificate", what));
        }
        Ok(count)
    }
}
