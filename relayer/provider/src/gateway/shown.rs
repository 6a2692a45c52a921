//! The certificate that a connection shows: whether it counts, and for how long its CA does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hpc_schema::time::UnixSeconds;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::Gateway;
use super::connection::Refused;
use super::once::Seldom;
use crate::admission::network;
use crate::clock;
use crate::enrol::{self, Outside};
use crate::identity::{IssuedBy, PeerError, PeerIdentity};

/// Moves when a CA is trusted no more; who judges by those that are left.
pub(super) type Trusting = watch::Receiver<Option<Arc<dyn ClientCertVerifier>>>;

/// What the other end has shown in its handshake, verified by the CAs of that time.
pub(super) struct Shown {
    pub(super) peer: PeerIdentity,
    pub(super) issuer: IssuedBy,
    /// As it was shown, its own first.
    pub(super) chain: Vec<CertificateDer<'static>>,
}

/// The certificate of this connection, if it showed one.
pub(super) fn shown(tls: &TlsStream<TcpStream>) -> Result<Option<Shown>, PeerError> {
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let Some(leaf) = chain.first() else {
        return Ok(None);
    };
    let (peer, issuer) = PeerIdentity::with_issuer(leaf)?;
    Ok(Some(Shown {
        peer,
        issuer,
        chain: chain.to_vec(),
    }))
}

/// What an outside CA has issued to a node on record is noted, so that it can be revoked. Since when it is on record, which
/// is not asked of the gateway's own; or why it does not count.
pub(super) async fn note_outside(
    gateway: &Gateway,
    peer: &PeerIdentity,
    issuer: &IssuedBy,
    from: IpAddr,
) -> Result<Option<UnixSeconds>, Refused> {
    static LOGGED: Seldom = Seldom::new();
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    if gateway.ca().is(issuer) {
        return Ok(None);
    }
    if gateway.registry.node(cluster, node).is_none() {
        return Err(Refused::NodeUnknown);
    }
    let why = match enrol::record_outside(&gateway.store, peer, clock::now()).await {
        Ok(Outside::OnRecord { since }) => return Ok(Some(since)),
        Ok(Outside::Revoked) => super::answer::REVOKED,
        Ok(Outside::NoRoom) => {
            "as many certificates of the node are on record as may count, and this one is not; an operator may revoke them (virtengine-provider certificate revoke --node-id NODE)"
        }
        Err(error) => {
            if let Some(others) = LOGGED.note(clock::steady()) {
                tracing::error!(%error, %cluster, %node, others,
                    "a certificate of an outside CA could not be put on record and is refused; others since the last such line");
            }
            return Err(Refused::NotNoted);
        }
    };
    if let Some(before) = gateway.once.note(network(from), why, clock::steady()) {
        tracing::warn!(%cluster, %node, %from, serial = %peer.serial, issuer = %peer.issuer, passed_over = before,
            "a certificate of an outside CA is refused: {why}; the same from there is not logged for ten minutes");
    }
    Err(Refused::Certificate(why))
}

/// Ends when those who are trusted no longer vouch for this chain, since `trusting` was taken.
pub(super) async fn distrusted(
    chain: &[CertificateDer<'static>],
    peer: &PeerIdentity,
    mut trusting: Trusting,
) {
    loop {
        if trusting.changed().await.is_err() {
            return std::future::pending().await;
        }
        let verifier = trusting.borrow_and_update().clone();
        if verifier.is_some_and(|v| !vouches(&*v, chain)) {
            tracing::info!(cluster = %peer.cluster_id, node = %peer.node_id, serial = %peer.serial,
                "a connection with a certificate whose CA is trusted no more is closed");
            return;
        }
    }
}

fn vouches(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'static>]) -> bool {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(clock::now().0));
    chain
        .split_first()
        .is_some_and(|(leaf, rest)| verifier.verify_client_cert(leaf, rest, now).is_ok())
}
