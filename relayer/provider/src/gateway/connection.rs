use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::Gateway;
use super::answer::Failure;
use crate::identity::PeerIdentity;

/// One accepted connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The other end.
    pub from: SocketAddr,
    /// By its verified client certificate, if it showed one.
    pub peer: Option<Arc<PeerIdentity>>,
    /// Why that does not count, if it was found not to when it was shown.
    pub refused: Option<Refused>,
}

/// Why a certificate that TLS has verified does not count on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// For what it is.
    Certificate(&'static str),
    /// The store failed, so it may not be on record: nobody could revoke it.
    NotNoted,
    /// Its node was not known, so it is not on record. Nothing is kept from who is still unknown.
    NodeUnknown,
}

impl Connection {
    /// The other end's address, v4 as v4.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }

    /// The node that the path names, if the certificate is its and still counts: a connection may outlive it.
    pub(super) fn node(
        &self,
        gateway: &Gateway,
        path_node: &str,
        now: UnixSeconds,
    ) -> Result<&PeerIdentity, Failure> {
        let mismatch = |what: String| Failure::forbidden(Code::IdentityMismatch, what);
        let peer = self
            .peer
            .as_deref()
            .ok_or_else(|| mismatch("this request needs the node's client certificate".into()))?;
        if peer.node_id.as_str() != path_node {
            return Err(mismatch(format!(
                "the path names another node than the certificate ({})",
                peer.node_id
            )));
        }
        // Another connection is another try to put it on record.
        let again =
            |seconds| Failure::unavailable(seconds, "the certificate is not on record yet; try again");
        match self.refused {
            Some(Refused::Certificate(why)) => {
                return Err(Failure::certificate(
                    "a certificate of an outside CA that does not count",
                    why,
                ));
            }
            Some(Refused::NotNoted) => return Err(again(5)),
            Some(Refused::NodeUnknown)
                if gateway.registry.node(&peer.cluster_id, &peer.node_id).is_some() =>
            {
                return Err(again(1));
            }
            Some(Refused::NodeUnknown) | None => {}
        }
        still_counts(gateway, peer, now)?;
        Ok(peer)
    }
}

/// Whether a certificate that TLS has verified counts now: within its time, not revoked, of the node's present
/// registration.
fn still_counts(gateway: &Gateway, peer: &PeerIdentity, now: UnixSeconds) -> Result<(), Failure> {
    if now >= peer.not_after {
        let what = format!("the client certificate expired at {}", peer.not_after);
        return Err(Failure::certificate("a certificate that has expired", what));
    }
    if gateway.controls.is_revoked(peer) {
        return Err(Failure::revoked());
    }
    // A node that is not on record is refused for that.
    let Some(node) = gateway.registry.node(&peer.cluster_id, &peer.node_id) else {
        return Ok(());
    };
    match peer.epoch {
        Some(epoch) if epoch == node.chain.epoch => Ok(()),
        // Another gateway of the site, or this one before its store was restored, has seen more of the chain.
        Some(epoch) if epoch > node.chain.epoch => Err(Failure::unavailable(
            2,
            "the gateway has not read the node's newest registration yet",
        )),
        _ => Err(Failure::certificate(
            "a certificate of an earlier registration",
            "the client certificate belongs to an earlier registration of the node",
        )),
    }
}
