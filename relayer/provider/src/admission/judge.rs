mod case;
mod consider;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hpc_schema::command::Acknowledgement;
use hpc_schema::time::UnixSeconds;
use hyper::body::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::nonce::{Claim, Nonces, Window};
use super::verdict::{Verdict, repeated, stale};
use super::verifiers::Verifiers;
use crate::config::Live;
use crate::control::Controls;
use crate::identity::PeerIdentity;
use crate::registry::{Node, Registry, Seen, heard_of};
use crate::spool::{Gone, Spool};
use crate::store::Store;
use case::{Unread, Waits};

/// For what other gateways have accepted: who waits longer has no answer in time, and is told the number known here.
const ON_RECORD: Duration = Duration::from_secs(1);

/// What is on record, and where what is accepted goes.
#[derive(Debug)]
pub struct Records {
    registry: Arc<Registry>,
    controls: Arc<Controls>,
    spool: Spool,
    window: Window,
    /// Says whether full heartbeats are kept for proofs; none: they are not.
    live: Option<Live>,
}

impl Records {
    /// This registry, these orders of the operator, and this queue.
    #[must_use]
    pub fn new(registry: Arc<Registry>, controls: Arc<Controls>, spool: Spool) -> Self {
        Self {
            registry,
            controls,
            spool,
            window: Window::default(),
            live: None,
        }
    }

    /// The same, with full heartbeats kept for proofs where the configuration says so.
    #[must_use]
    pub fn keeping(mut self, live: Live) -> Self {
        self.live = Some(live);
        self
    }
}

/// Decides on heartbeats.
#[derive(Debug)]
pub struct Judge {
    records: Arc<Records>,
    verifiers: Verifiers<Unread>,
    /// Where other gateways take heartbeats in too; none: there are none.
    shared: Option<Store>,
}

impl Judge {
    /// By these records, on every CPU that this process may use; within a runtime.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(records: Records) -> std::io::Result<Self> {
        Ok(Self::by(records, Verifiers::start()?))
    }

    fn by(records: Records, verifiers: Verifiers<Unread>) -> Self {
        Self {
            records: Arc::new(records),
            verifiers,
            shared: None,
        }
    }

    /// The same, on a store that other gateways may work on too.
    #[must_use]
    pub fn on(mut self, store: Store) -> Self {
        self.shared = store.is_shared().then_some(store);
        self
    }

    /// Ends when nobody judges any more. Whoever waits for that keeps the threads, and nothing that is on record.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let verifiers = self.verifiers.clone();
        async move { verifiers.ended().await }
    }

    /// Forgets what is no longer needed.
    pub fn prune(&self, now: UnixSeconds) {
        self.records.window.prune(now);
    }

    /// Of these nodes the store has forgotten what was accepted.
    pub fn forget(&self, gone: Vec<Gone>) {
        self.records.spool.forget(gone);
    }

    /// For how long the database has not taken in what the spool's journal holds.
    #[must_use]
    pub fn behind(&self) -> Duration {
        self.records.spool.behind()
    }

    /// The last row of a node that could not be read and was written anew, for a day.
    #[must_use]
    pub fn mended(&self) -> Option<String> {
        self.records.spool.mended()
    }

    /// How full the spool's queue is, in thousandths.
    #[must_use]
    pub fn load_permille(&self) -> usize {
        self.records.spool.load_permille()
    }

    /// Has the heartbeat in this body, which came from a node that is seen like this, read and verified, and its report stored;
    /// an accepted one is durable when its verdict is there. `nonces` are this node's, held from the first time on that it is
    /// known.
    pub fn judge(
        &self,
        peer: &Arc<PeerIdentity>,
        nonces: &OnceLock<Nonces>,
        body: Bytes,
        seen: Seen,
        now_ms: u64,
    ) -> Judged<'_> {
        let (unread, judged) = self.unread(peer, nonces, body, seen, now_ms);
        self.verifiers.take(unread);
        judged
    }

    /// The same as it waits to be read, and who waits for it.
    fn unread(
        &self,
        peer: &Arc<PeerIdentity>,
        nonces: &OnceLock<Nonces>,
        body: Bytes,
        seen: Seen,
        now_ms: u64,
    ) -> (Unread, Judged<'_>) {
        let (reply, ruled) = oneshot::channel();
        let claim = Claim::default();
        // Nothing is kept of who is not known.
        let nonces =
            (seen.node.is_some()).then(|| nonces.get_or_init(|| self.records.window.of(peer)).clone());
        let unread = Unread {
            records: Arc::clone(&self.records),
            peer: Arc::clone(peer),
            nonces,
            body,
            seen,
            now_ms,
            waits: Waits {
                claim: claim.clone(),
                acknowledgements: Vec::new(),
                reply,
            },
        };
        let judged = Judged {
            judge: self,
            claim,
            ruled,
        };
        (unread, judged)
    }

    /// Another gateway may have accepted more of the node than is known here yet: the node is told that number, to go on
    /// above it.
    async fn on_record(&self, store: &Store, node: &Node, verdict: Verdict) -> Verdict {
        match timeout(ON_RECORD, heard_of(store, &self.records.registry, node)).await {
            Ok(Ok(Some(node))) => repeated(stale(node.floor()), node),
            Ok(Ok(None)) => verdict,
            // It is told the number that is known here.
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(cluster = %node.cluster_id, node = %node.node_id,
                    "what other gateways have accepted of the node cannot be read");
                verdict
            }
        }
    }
}

/// A heartbeat that is judged: what is left is to wait. Of one that is waited for no longer the nonce may come again.
#[derive(Debug)]
#[must_use = "nothing is stored for who does not wait"]
pub struct Judged<'a> {
    judge: &'a Judge,
    claim: Claim,
    ruled: oneshot::Receiver<Ruling>,
}

/// What becomes of a heartbeat.
#[derive(Debug)]
pub struct Ruling {
    /// Whether it is taken.
    pub verdict: Verdict,
    /// What it says of its orders; none of one that cannot be read.
    pub acknowledgements: Vec<Acknowledgement>,
}

impl Judged<'_> {
    /// What becomes of it; to be asked for once. It is lent, not taken, so that what waits is small: thousands do.
    pub async fn ruling(&mut self) -> Ruling {
        let Ok(mut ruling) = (&mut self.ruled).await else {
            return Ruling {
                verdict: Verdict::Unjudged,
                acknowledgements: Vec::new(),
            };
        };
        // Who is not to count it has given it up.
        self.claim.count();
        if let (Some(store), Some(node)) = (&self.judge.shared, ruling.verdict.stale_of()) {
            // Apart: what is seldom needed makes no other heartbeat's memory larger.
            ruling.verdict = Box::pin(self.judge.on_record(store, &node, ruling.verdict)).await;
        }
        ruling
    }
}

impl Drop for Judged<'_> {
    fn drop(&mut self) {
        self.claim.give_up();
    }
}

#[cfg(test)]
mod tests;
