//! The newest block of every endpoint, as soon as it is known: by subscription, and by asking where there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::blocks::Blocks;
use super::endpoints::Endpoints;
use super::error::RpcError;
use super::types::Status;
use crate::settle::EndpointId;

/// A subscription that tells nothing for so long is checked by asking: the chain may stand still, or the endpoint hang.
const QUIET: Duration = Duration::from_secs(10);
/// Where subscribing failed, asking goes on for so long before the next try.
const RESUBSCRIBE: Duration = Duration::from_secs(15);
/// How far back the first look at an endpoint goes, to learn the block time.
const LOOK_BACK: u64 = 20;

/// What is known of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its newest block; none while it does not answer.
    pub head: Option<SeenBlock>,
    /// An older block of it, seen at its first answer: together they tell the block time.
    pub older: Option<SeenBlock>,
    /// Whether blocks are told by it, rather than asked for.
    pub subscribed: bool,
    /// How long its last answer to `status` took, milliseconds.
    pub latency_ms: u64,
    /// It is of this other chain.
    pub foreign: Option<String>,
    /// Why it does not answer.
    pub failure: Option<String>,
    /// It keeps no index of transactions.
    pub index_off: bool,
    /// It is an endpoint no more.
    pub gone: bool,
}

/// A block's height and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenBlock {
    /// Height.
    pub height: u64,
    /// Header time, UNIX milliseconds.
    pub time_ms: u64,
}

/// Follows every endpoint, each in a task of its own, so that one that hangs keeps nobody waiting. Ends when dropped.
#[derive(Debug)]
pub struct Follower {
    seen: watch::Receiver<Vec<Seen>>,
    _tasks: JoinSet<()>,
}

impl Follower {
    /// Follows these endpoints of chain `chain_id`; asks every `poll` where nothing is told.
    #[must_use]
    pub fn start(endpoints: &Endpoints, chain_id: &str, poll: Duration) -> Self {
        let count = endpoints.iter().count();
        let (sender, seen) = watch::channel(vec![Seen::default(); count]);
        let all = All {
            endpoints: endpoints.clone(),
            chain_id: chain_id.to_owned(),
            poll,
            seen: Arc::new(sender),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(all.follow());
        Self { seen, _tasks: tasks }
    }

    /// The endpoints in their order; told at each change.
    #[must_use]
    pub fn seen(&self) -> watch::Receiver<Vec<Seen>> {
        self.seen.clone()
    }
}

/// One task for each that there is, as they come and go.
struct All {
    endpoints: Endpoints,
    chain_id: String,
    poll: Duration,
    seen: Arc<watch::Sender<Vec<Seen>>>,
}

impl All {
    async fn follow(self) {
        let mut changes = self.endpoints.changes();
        let mut tasks: BTreeMap<EndpointId, JoinSet<()>> = BTreeMap::new();
        loop {
            changes.borrow_and_update();
            let now: BTreeSet<EndpointId> = self.endpoints.iter().map(|(id, _)| id).collect();
            let gone: Vec<EndpointId> = tasks.keys().filter(|id| !now.contains(id)).copied().collect();
            for id in gone {
                if let Some(mut task) = tasks.remove(&id) {
                    // To its end: it may be about to say something.
                    task.shutdown().await;
                }
                self.put(id, true);
            }
            for id in now {
                if tasks.contains_key(&id) {
                    continue;
                }
                self.put(id, false);
                let one = One {
                    endpoints: self.endpoints.clone(),
                    endpoint: id,
                    chain_id: self.chain_id.clone(),
                    poll: self.poll,
                    seen: Arc::clone(&self.seen),
                };
                tasks.entry(id).or_default().spawn(one.follow());
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Nothing is known of it, or it is none any more.
    fn put(&self, id: EndpointId, gone: bool) {
        let index = usize::from(id.0);
        self.seen.send_modify(|all| {
            if all.len() <= index {
                all.resize(index + 1, Seen::default());
            }
            if let Some(one) = all.get_mut(index) {
                *one = Seen {
                    gone,
                    ..Seen::default()
                };
            }
        });
    }
}

struct One {
    endpoints: Endpoints,
    endpoint: EndpointId,
    chain_id: String,
    poll: Duration,
    seen: Arc<watch::Sender<Vec<Seen>>>,
}

impl One {
    async fn follow(self) {
        let mut subscribe_at = Instant::now();
        loop {
            let answers = self.ask().await;
            if answers && Instant::now() >= subscribe_at {
                let ended = self.listen().await;
                let name = self.endpoints.get(self.endpoint).map_or("", |c| c.name());
                tracing::debug!(endpoint = name, error = %ended, "no subscription to new blocks; they are asked for");
                subscribe_at = Instant::now() + RESUBSCRIBE;
                self.change(|s| s.subscribed = false);
            }
            sleep(self.poll).await;
        }
    }

    /// Asks for the newest block; whether the endpoint answers and is of our chain.
    async fn ask(&self) -> bool {
        let asked = Instant::now();
        let Some(head) = self.endpoints.head(self.endpoint).await else {
            return false;
        };
        let latency_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        match head.status {
            Ok(status) if status.chain_id != self.chain_id => {
                self.change(|s| {
                    *s = Seen {
                        foreign: Some(status.chain_id),
                        ..Seen::default()
                    };
                });
                false
            }
            Ok(status) if status.height == 0 => false,
            Ok(status) => {
                let known = self
                    .seen
                    .borrow()
                    .get(usize::from(self.endpoint.0))
                    .is_some_and(|s| s.older.is_some());
                let older = if known { None } else { self.older(&status).await };
                let head = Some(SeenBlock {
                    height: status.height,
                    time_ms: status.block_time_ms,
                });
                self.change(|s| {
                    *s = Seen {
                        head,
                        older: older.or(s.older),
                        subscribed: s.subscribed,
                        latency_ms,
                        foreign: None,
                        failure: None,
                        index_off: !status.tx_index,
                        gone: false,
                    };
                });
                true
            }
            Err(e) => {
                self.lost(&e);
                false
            }
        }
    }

    /// Takes blocks as they are told, until that ends; says why it did.
    async fn listen(&self) -> RpcError {
        let Some(client) = self.endpoints.get(self.endpoint) else {
            return RpcError::NoEndpoint;
        };
        let mut blocks = match Blocks::subscribe(client).await {
            Ok(blocks) => blocks,
            Err(e) => return e,
        };
        self.change(|s| s.subscribed = true);
        // Between the last answer and the subscription a block may have come.
        if !self.ask().await {
            return RpcError::NoEndpoint;
        }
        loop {
            match timeout(QUIET, blocks.next()).await {
                Ok(Ok(block)) if block.chain_id == self.chain_id => {
                    self.endpoints.seen(self.endpoint, block.height);
                    let head = Some(SeenBlock {
                        height: block.height,
                        time_ms: block.time_ms,
                    });
                    self.change(|s| s.head = head);
                }
                Ok(Ok(block)) => {
                    return RpcError::WrongChain {
                        endpoint: client.name().to_owned(),
                        found: block.chain_id,
                        wanted: self.chain_id.clone(),
                    };
                }
                Ok(Err(e)) => {
                    // Whether the endpoint is gone, or only the subscription, the next answer shows.
                    self.ask().await;
                    return e;
                }
                Err(_) => {
                    let before = self.height();
                    if !self.ask().await || self.height() != before {
                        return RpcError::Timeout {
                            endpoint: client.name().to_owned(),
                            method: "subscribe",
                            millis: u64::try_from(QUIET.as_millis()).unwrap_or(u64::MAX),
                        };
                    }
                }
            }
        }
    }

    async fn older(&self, status: &Status) -> Option<SeenBlock> {
        let height = status
            .height
            .saturating_sub(LOOK_BACK)
            .max(status.earliest_height)
            .max(1);
        let block = self
            .endpoints
            .get(self.endpoint)?
            .block(Some(height))
            .await
            .ok()?;
        Some(SeenBlock {
            height,
            time_ms: block.time_ms,
        })
    }

    fn height(&self) -> Option<u64> {
        let seen = self.seen.borrow();
        Some(seen.get(usize::from(self.endpoint.0))?.head?.height)
    }

    fn lost(&self, e: &RpcError) {
        self.change(|s| {
            s.head = None;
            s.failure = Some(e.to_string());
        });
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_if_modified(|all| {
            let Some(one) = all.get_mut(usize::from(self.endpoint.0)) else {
                return false;
            };
            let before = one.clone();
            change(one);
            // How long an answer took is no news.
            Seen {
                latency_ms: 0,
                ..before
            } != Seen {
                latency_ms: 0,
                ..one.clone()
            }
        });
    }
}
