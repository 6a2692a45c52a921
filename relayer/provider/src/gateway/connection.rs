use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::Gateway;
use super::answer::Failure;
use super::pace::Pace;
use crate::admission::{Nonces, Own};
use crate::identity::PeerIdentity;
use crate::registry::{Place, Seen, Whose};

/// So long from when an outside CA's certificate was first seen its registration may be one that this gateway has not read yet:
/// longer than it takes to read one that another gateway has taken.
const UNREAD: Duration = Duration::from_secs(60);

/// One accepted connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The other end.
    pub from: SocketAddr,
    /// By its verified client certificate, if it showed one.
    pub peer: Option<Arc<PeerIdentity>>,
    /// Why that does not count, if it was found not to when it was shown.
    pub refused: Option<Refused>,
    /// Until when a registration above the known one is taken for one that is not read yet; none: for ever, as of a
    /// certificate of the gateway's own CA, which issues none for another.
    pub newer_until: Option<Instant>,
    /// What its task and its requests tell one another of their time.
    pub(super) pace: Arc<Pace>,
    /// So that its requests do not look it up.
    pub(super) held: Held,
}

/// What is its node's and a connection holds, once it has needed it.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// The bucket of requests about tasks.
    pub(super) working: OnceLock<Own>,
    /// The one of the others.
    pub(super) requests: OnceLock<Own>,
    /// Its nonces.
    pub(super) nonces: OnceLock<Nonces>,
    /// Where the registry has it.
    place: OnceLock<Place>,
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

/// A look at who asks, at one moment. To be let go of before anything but its body is waited for that may take long: a node
/// that changes while it is seen is copied.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// None: no certificate was shown.
    standing: Option<Standing>,
    /// Of the node that the certificate names.
    pub(super) seen: Seen,
}

/// How a certificate that TLS has verified stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is its node's.
    Counts,
    /// It was, and its time is over.
    Expired,
    /// An operator has taken it back.
    Revoked,
    /// Of a registration that the gateway has not read yet.
    Unread,
    /// Of none that there is: its serial number, and the registration that counts.
    Unknown(u64, u64),
    /// Of a registration that counts no more, or it names none.
    Earlier,
}

impl Connection {
    /// A newly accepted one that shows `peer`: since when that is on record, if an outside CA has issued it, or why it does not
    /// count.
    pub(super) fn shows(
        from: SocketAddr,
        peer: Arc<PeerIdentity>,
        noted: Result<Option<UnixSeconds>, Refused>,
        now: UnixSeconds,
    ) -> Self {
        // From its first connection on, at whichever gateway: an agent that is refused at one goes to the next. Of a clock that
        // was put back it is new.
        let left = |since: UnixSeconds| UNREAD.saturating_sub(Duration::from_secs(now.minus(since.0).0));
        let since = noted.unwrap_or(Some(now));
        Self {
            from,
            peer: Some(peer),
            refused: noted.err(),
            newer_until: since.map(|since| Instant::now() + left(since)),
            pace: Arc::default(),
            held: Held::default(),
        }
    }

    /// A newly accepted one that shows no certificate.
    pub(super) fn bare(from: SocketAddr) -> Self {
        Self {
            from,
            peer: None,
            refused: None,
            newer_until: None,
            pace: Arc::default(),
            held: Held::default(),
        }
    }

    /// The other end's address, v4 as v4.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }

    /// The node whose places and requests these are: none where the certificate is refused, or a thief would use up what its
    /// node has; and none where an outside CA names a node that there is not, for that may be any name.
    pub(super) fn member(&self, gateway: &Gateway, now: UnixSeconds) -> Option<&PeerIdentity> {
        self.member_at(&self.look(gateway, now))
    }

    /// The same at the moment of this look.
    pub(super) fn member_at(&self, look: &Look) -> Option<&PeerIdentity> {
        let refused = match self.refused {
            Some(Refused::Certificate(_)) => true,
            Some(Refused::NodeUnknown) => look.seen.node.is_none(),
            Some(Refused::NotNoted) | None => false,
        };
        let counts = matches!(look.standing, Some(Standing::Counts | Standing::Unread));
        self.peer.as_deref().filter(|_| !refused && counts)
    }

    /// The node of this certificate, which is the connection's, as the registry has it.
    pub(super) fn whose<'a>(&'a self, peer: &'a PeerIdentity) -> Whose<'a> {
        Whose {
            cluster: &peer.cluster_id,
            node: &peer.node_id,
            held: Some(&self.held.place),
        }
    }

    /// Who asks, as it stands now.
    pub(super) fn look(&self, gateway: &Gateway, now: UnixSeconds) -> Look {
        let Some(peer) = self.peer.as_deref() else {
            return Look::default();
        };
        let seen = gateway.registry.seen(self.whose(peer));
        let known = seen.node.as_ref().map(|n| n.chain.epoch);
        Look {
            standing: Some(self.standing(gateway, peer, known, now)),
            seen,
        }
    }

    /// The node that the path names, if the certificate is its and still counts: a connection may outlive it.
    pub(super) fn node(
        &self,
        gateway: &Gateway,
        path_node: &str,
        now: UnixSeconds,
    ) -> Result<&PeerIdentity, Failure> {
        self.node_at(path_node, &self.look(gateway, now))
            .map(AsRef::as_ref)
    }

    /// The same at the moment of this look.
    pub(super) fn node_at(&self, path_node: &str, look: &Look) -> Result<&Arc<PeerIdentity>, Failure> {
        let mismatch = |what: String| Failure::forbidden(Code::IdentityMismatch, what);
        let (Some(peer), Some(standing)) = (self.peer.as_ref(), look.standing) else {
            return Err(mismatch(
                "this request needs the node's client certificate".into(),
            ));
        };
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
            Some(Refused::NodeUnknown) if look.seen.node.is_some() => return Err(again(1)),
            Some(Refused::NodeUnknown) | None => {}
        }
        match standing {
            Standing::Counts => Ok(peer),
            Standing::Expired => {
                let what = format!("the client certificate expired at {}", peer.not_after);
                Err(Failure::certificate("a certificate that has expired", what))
            }
            Standing::Revoked => Err(Failure::revoked()),
            Standing::Unread => Err(Failure::unavailable(
                2,
                "the gateway has not read the node's newest registration yet",
            )),
            Standing::Unknown(serial, epoch) => {
                let what = format!(
                    "serialNumber {serial} in the client certificate's subject is no registration of the node; it must be \
                     the epoch, which is {epoch}"
                );
                Err(Failure::certificate("a certificate of no registration", what))
            }
            Standing::Earlier => Err(Failure::certificate(
                "a certificate of an earlier registration",
                "the client certificate belongs to an earlier registration of the node",
            )),
        }
    }

    /// Whether a certificate that TLS has verified counts now: within its time, not revoked, of the node's present
    /// registration, which is `known`.
    fn standing(
        &self,
        gateway: &Gateway,
        peer: &PeerIdentity,
        known: Option<u64>,
        now: UnixSeconds,
    ) -> Standing {
        if now >= peer.not_after {
            return Standing::Expired;
        }
        if gateway.controls.is_revoked(peer) {
            return Standing::Revoked;
        }
        // A node that is not on record is refused for that.
        let Some(known) = known else {
            return Standing::Counts;
        };
        match peer.epoch {
            Some(epoch) if epoch == known => Standing::Counts,
            // Another gateway of the site, or this one before its store was restored, has seen more of the chain; or an outside
            // CA has put something else there.
            Some(epoch) if epoch > known => {
                let waits = self.newer_until.is_none_or(|until| Instant::now() < until);
                if waits || gateway.registry.is_unread(&peer.cluster_id) {
                    Standing::Unread
                } else {
                    Standing::Unknown(epoch, known)
                }
            }
            _ => Standing::Earlier,
        }
    }
}
