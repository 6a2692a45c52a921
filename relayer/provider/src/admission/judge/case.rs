//! A heartbeat on its way from its body to its verdict.

use std::sync::Arc;

use hpc_schema::command::Acknowledgement;
use hpc_schema::heartbeat::HeartbeatRequest;
use hyper::body::Bytes;
use tokio::sync::oneshot;

use super::super::nonce::{Claim, Nonces};
use super::super::signatures::Signatures;
use super::super::verdict::{Verdict, refuse, repeated, stale};
use super::super::verifiers::{Case, Pending};
use super::consider::{Against, Decides, Ready};
use super::{Records, Ruling};
use crate::fault;
use crate::identity::PeerIdentity;
use crate::registry::Seen;
use crate::spool::{Accept, Accepted, Hears};
use crate::store::StoreError;

/// As it came.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) records: Arc<Records>,
    pub(super) peer: Arc<PeerIdentity>,
    /// None of a node that is not known.
    pub(super) nonces: Option<Nonces>,
    pub(super) body: Bytes,
    pub(super) seen: Seen,
    pub(super) now_ms: u64,
    pub(super) waits: Waits,
}

/// Read, with its signatures still to be verified.
#[derive(Debug)]
pub(super) struct Unverified {
    records: Arc<Records>,
    /// It is read once more to say what is wrong with a signature.
    body: Bytes,
    against: Against,
    /// What is to be stored if they are good, or what becomes of it then.
    outcome: Result<(Ready, Box<Accept>), Verdict>,
    waits: Waits,
}

/// Its report is being stored.
#[derive(Debug)]
struct Stored {
    ready: Ready,
    waits: Waits,
}

/// Who waits for it.
#[derive(Debug)]
pub(super) struct Waits {
    /// Of its nonce, once it has one that counts.
    pub(super) claim: Claim,
    /// What it says of its orders, once it is read.
    pub(super) acknowledgements: Vec<Acknowledgement>,
    pub(super) reply: oneshot::Sender<Ruling>,
}

impl Waits {
    /// Nobody does any more. Then nothing is stored: the same request may come again.
    fn nobody(&self) -> bool {
        self.reply.is_closed()
    }

    /// It is not stored, and its nonce may come again.
    fn turn_away(self, verdict: Verdict) {
        self.claim.give_up();
        self.tell(verdict);
    }

    fn tell(self, verdict: Verdict) {
        let ruling = Ruling {
            verdict,
            acknowledgements: self.acknowledgements,
        };
        // Whoever asked may have gone.
        drop(self.reply.send(ruling));
    }
}

#[cfg(test)]
impl Unverified {
    /// Whether nothing is wrong with it but that its signatures may not be good.
    pub(super) fn is_ready(&self) -> bool {
        self.outcome.is_ok()
    }
}

impl Case for Unread {
    type Read = Unverified;

    fn read(self) -> Option<(Signatures, Unverified)> {
        let Self {
            records,
            peer,
            nonces,
            body,
            seen,
            now_ms,
            mut waits,
        } = self;
        if waits.nobody() {
            return None;
        }
        let mut request = match HeartbeatRequest::parse(&body) {
            Ok(request) => request,
            Err(refusal) => {
                // What is held of a node is copied when it changes, which may be as soon as somebody is told.
                drop(seen);
                waits.turn_away(refuse(refusal, None));
                return None;
            }
        };
        waits.acknowledgements = std::mem::take(&mut request.acknowledgements);
        let considered = records.consider(&peer, &request, (seen, nonces), (now_ms, &waits.claim));
        let decides = considered.decides();
        let against = considered.against;
        let over = match (decides, considered.outcome, considered.noted) {
            (Decides::Signatures, outcome, Some(noted)) => {
                drop(request);
                let unverified = Unverified {
                    records,
                    body,
                    against,
                    outcome,
                    waits,
                };
                return Some((noted, unverified));
            }
            (Decides::Outcome, Err(verdict), _) => verdict,
            _ => against.refused(&request),
        };
        drop(against);
        waits.turn_away(over);
        None
    }

    fn turn_away(self, why: StoreError) {
        drop(self.seen);
        self.waits.turn_away(Verdict::Unavailable(why));
    }
}

impl Pending for Unverified {
    fn go_on(self) {
        drop(self.against);
        match self.outcome {
            // Whoever went has given up its nonce.
            Ok(_) if self.waits.nobody() => {}
            Ok((ready, accept)) => {
                fault::point("admit.verified");
                let stored = Stored {
                    ready,
                    waits: self.waits,
                };
                self.records.spool.put(accept, Box::new(stored));
            }
            Err(verdict) => self.waits.turn_away(verdict),
        }
    }

    fn refuse(self) {
        self.waits.claim.give_up();
        if self.waits.nobody() {
            return;
        }
        let verdict = match HeartbeatRequest::parse(&self.body) {
            Ok(request) => self.against.refused(&request),
            Err(refusal) => refuse(refusal, None),
        };
        drop((self.against, self.outcome));
        self.waits.tell(verdict);
    }
}

impl Hears for Stored {
    fn hears(self: Box<Self>, became: Result<Accepted, StoreError>) {
        let Self { ready, waits } = *self;
        match became {
            Ok(done) if done.accepted => {
                drop(ready.node);
                let verdict = Verdict::Accepted {
                    epoch: ready.epoch,
                    sequence: ready.sequence,
                    health: ready.health,
                };
                waits.tell(verdict);
            }
            // Its nonce counts: the same report is on record, or a later one.
            Ok(done) => {
                let number = done.sequence_ack.max(ready.node.floor());
                waits.tell(repeated(stale(number), ready.node));
            }
            Err(e) => {
                drop(ready);
                waits.turn_away(Verdict::Unavailable(e));
            }
        }
    }
}
