use std::net::{IpAddr, SocketAddr};

use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::answer::Failure;
use crate::identity::PeerIdentity;

/// One accepted connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The other end.
    pub from: SocketAddr,
    /// By its verified client certificate, if it showed one.
    pub peer: Option<PeerIdentity>,
}

impl Connection {
    /// The other end's address, v4 as v4.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }

    /// The node that the path names, if the certificate is its and still counts: a connection may outlive it.
    pub(super) fn node(&self, path_node: &str, now: UnixSeconds) -> Result<&PeerIdentity, Failure> {
        let mismatch = |what: String| Failure::forbidden(Code::IdentityMismatch, what);
        let peer = self
            .peer
            .as_ref()
            .ok_or_else(|| mismatch("this request needs the node's client certificate".into()))?;
        if now >= peer.not_after {
            return Err(mismatch(format!(
                "the client certificate expired at {}; recover it at …/certificate/challenge",
                peer.not_after
            )));
        }
        if peer.node_id.as_str() != path_node {
            return Err(mismatch(format!(
                "the path names another node than the certificate ({})",
                peer.node_id
            )));
        }
        Ok(peer)
    }
}
