use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::enrol::{self, CertificateRow, Which};
use crate::page::{Page, Window};

/// Which certificates are meant.
#[derive(Debug, Clone, Copy)]
pub enum Certificates<'a> {
    /// The one of this SHA-256, hex.
    Fingerprint(&'a str),
    /// The one of this serial number, hex.
    Serial(&'a str),
    /// All of a node; the cluster need not be named if only one has a node of this id.
    Node(&'a NodeId, Option<&'a ClusterId>),
}

impl<'a> Certificates<'a> {
    /// By one of them; the others must be left out.
    ///
    /// # Errors
    /// If several or none is named.
    pub fn one_of(
        fingerprint: Option<&'a str>,
        serial: Option<&'a str>,
        node: Option<&'a NodeId>,
        cluster: Option<&'a ClusterId>,
    ) -> Result<Self, AdminError> {
        match (fingerprint, serial, node) {
            (Some(fingerprint), None, None) => Ok(Self::Fingerprint(fingerprint)),
            (None, Some(serial), None) => Ok(Self::Serial(serial)),
            (None, None, Some(node)) => Ok(Self::Node(node, cluster)),
            _ => Err(AdminError::field(
                Code::InvalidField,
                "serial",
                "name one of fingerprint, serial and node_id",
            )),
        }
    }
}

impl Admin {
    /// Certificates of one node or all, newest first; ended ones only if they are revoked.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn certificates(
        &self,
        node: Option<&NodeId>,
        cluster: Option<&ClusterId>,
        window: Window<'_>,
    ) -> Result<Page<CertificateRow>, AdminError> {
        Ok(enrol::certificates(self.store.reader(), node, cluster, window, clock::now()).await?)
    }

    /// Revokes certificates; how many of those on record counted until now. It takes effect on open connections within a second.
    ///
    /// # Errors
    /// If one is named and there was none. Of a node some may never have been seen.
    pub async fn revoke_certificates(&self, by: &Actor, what: Certificates<'_>) -> Result<u64, AdminError> {
        let target = match what {
            Certificates::Fingerprint(which) | Certificates::Serial(which) => format!("certificate {which}"),
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
            Certificates::Fingerprint(fingerprint) => {
                let which: String = fingerprint.chars().filter(|c| *c != ':').collect();
                enrol::revoke_certificates(act.conn(), Which::Fingerprint(&which.to_lowercase()), now).await?
            }
            Certificates::Serial(serial) => {
                let found = enrol::of_serial(act.conn(), serial, now).await?;
                match found.as_slice() {
                    [] => 0,
                    [one] => enrol::revoke_certificates(act.conn(), Which::Fingerprint(one), now).await?,
                    several => {
                        let what = format!(
                            "several CAs have given it; name the certificate by its fingerprint: {}",
                            several.join(", ")
                        );
                        return Err(AdminError::field(Code::InvalidField, "serial", what));
                    }
                }
            }
            Certificates::Node(node, cluster) => {
                let known = self.resolve(node, cluster).await?;
                act.aim(super::node::target(&known.cluster_id, &known.node_id));
                let which = Which::Node(&known.cluster_id, &known.node_id);
                enrol::revoke_certificates(act.conn(), which, now).await?
            }
        };
        if count == 0 && !matches!(what, Certificates::Node(..)) {
            let what = "no such certificate counts (virtengine-provider certificate list)";
            return Err(AdminError::field(Code::InvalidState, "certificate", what));
        }
        Ok(count)
    }
}
