//! Several endpoints of one chain: which one to ask, and the next one if it fails.

use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::client::{Client, ClientOptions};
use super::error::RpcError;
use super::health::Health;
use super::types::Status;
use crate::code::Class;
use crate::settle::EndpointId;

/// Addresses that may come to those of the start, over the life of a process.
const SPARE: usize = 64;
/// One so many blocks below the highest of those that answer comes after it, whatever that leaves unanswered.
const LATE: u64 = 10;

/// The operator's endpoints in their order. Cheap to clone. They may be replaced: each keeps its number, and none gets that
/// of another, so that what was seen of the one is never held against the other.
#[derive(Debug, Clone)]
pub struct Endpoints {
    clients: Arc<[OnceLock<Client>]>,
    /// One for each that there is or was.
    health: Arc<Mutex<Vec<Health>>>,
    changes: Arc<watch::Sender<u64>>,
    options: ClientOptions,
    /// The chain that every one of them must be of, if it is known.
    chain_id: Option<Arc<str>>,
}

/// Endpoints that may take the place of the present ones.
#[derive(Debug)]
pub struct Prepared(Vec<Client>);

/// What one endpoint said about its newest block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Its status, or why there is none.
    pub status: Result<Status, RpcError>,
}

impl Endpoints {
    /// Clients of these addresses.
    ///
    /// # Errors
    /// [`RpcError::NoEndpoint`] for an empty list, [`RpcError::Url`] for a bad address.
    pub fn new<S: AsRef<str>>(urls: &[S], options: ClientOptions) -> Result<Self, RpcError> {
        let clients = clients(urls, &options)?;
        let health = Arc::new(Mutex::new(vec![Health::default(); clients.len()]));
        let spare = (0..SPARE).map(|_| OnceLock::new());
        Ok(Self {
            clients: clients.into_iter().map(OnceLock::from).chain(spare).collect(),
            health,
            changes: Arc::new(watch::Sender::new(0)),
            options,
            chain_id: None,
        })
    }

    /// Clients of these addresses, to take the place of the present ones; nothing has changed yet.
    ///
    /// # Errors
    /// As [`Self::new`]; [`RpcError::TooMany`] once more addresses have come than a process keeps apart.
    pub fn prepare<S: AsRef<str>>(&self, urls: &[S]) -> Result<Prepared, RpcError> {
        let clients = clients(urls, &self.options)?;
        let new = clients.iter().filter(|c| self.place_of(c).is_none()).count();
        let taken = self.health().len();
        if taken.saturating_add(new) > self.clients.len() {
            return Err(RpcError::TooMany);
        }
        Ok(Prepared(clients))
    }

    /// From here on these are asked. What is under way with another one comes to its end; one that stays keeps its connections.
    pub fn replace(&self, prepared: Prepared) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let before = health.clone();
        for known in health.iter_mut() {
            known.gone = true;
        }
        for client in prepared.0 {
            match self.place_of(&client) {
                Some(place) => {
                    if let (Some(now), Some(was)) = (health.get_mut(place), before.get(place)) {
                        *now = if was.gone { Health::default() } else { *was };
                        if was.gone
                            && let Some(known) = self.clients.get(place).and_then(OnceLock::get)
                        {
                            known.forget_silences();
                        }
                    }
                }
                None => {
                    let free = self.clients.get(health.len());
                    if free.is_some_and(|slot| slot.set(client).is_ok()) {
                        health.push(Health::default());
                    }
                }
            }
        }
        drop(health);
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Moves whenever they have been replaced.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn place_of(&self, client: &Client) -> Option<usize> {
        let known = self.clients.iter().map_while(OnceLock::get);
        known.enumerate().find(|(_, c)| c.is_same(client)).map(|(i, _)| i)
    }

    /// The same endpoints, of which only those are asked that are of this chain. Each is made to say so before its first
    /// answer counts, and again after a failure: another node may have come up behind the address.
    #[must_use]
    pub fn of_chain(mut self, chain_id: &str) -> Self {
        self.chain_id = Some(chain_id.into());
        self
    }

    /// All endpoints with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (EndpointId, &Client)> {
        let all = (0u16..).map(EndpointId).zip(self.health());
        all.filter(|(_, h)| !h.gone)
            .filter_map(|(id, _)| Some((id, self.get(id)?)))
    }

    /// One of them, or one that was.
    #[must_use]
    pub fn get(&self, id: EndpointId) -> Option<&Client> {
        self.clients.get(usize::from(id.0))?.get()
    }

    /// The highest block that any of them has shown; 0 before the first.
    #[must_use]
    pub fn highest(&self) -> u64 {
        let health = self.health();
        let heights = health.iter().filter(|h| !h.gone).map(|h| h.height);
        heights.max().unwrap_or(0)
    }

    /// The one to ask first: not ten blocks behind, without a call that had no answer in the last minute, without failures,
    /// with the highest block, in the operator's order.
    #[must_use]
    pub fn best(&self) -> Option<&Client> {
        self.order().first().and_then(|id| self.get(*id))
    }

    /// Asks every endpoint for its newest block, all at once.
    pub async fn heads(&self) -> Vec<Head> {
        let mut tasks = tokio::task::JoinSet::new();
        for (endpoint, _) in self.iter() {
            let all = self.clone();
            tasks.spawn(async move { all.head(endpoint).await });
        }
        let mut heads = Vec::new();
        while let Some(done) = tasks.join_next().await {
            heads.extend(done.ok().flatten());
        }
        heads.sort_by_key(|h| h.endpoint);
        heads
    }

    /// Asks one endpoint for its newest block; `None` if there is none of this number.
    pub async fn head(&self, endpoint: EndpointId) -> Option<Head> {
        let status = self.get(endpoint)?.status().await;
        match &status {
            Ok(s) if self.is_ours(s) => self.seen(endpoint, s.height),
            Ok(_) => self.failed(endpoint),
            Err(e) => self.no_status(endpoint, e),
        }
        Some(Head { endpoint, status })
    }

    /// An endpoint of the right chain has shown a block of this height.
    pub fn seen(&self, endpoint: EndpointId, height: u64) {
        self.note(endpoint, |h| h.seen(height));
    }

    /// Calls `ask` on the best endpoint, and on the next one while the failure is transient, or the endpoint's own: it refuses
    /// the call, or takes or gives no message of this size.
    ///
    /// # Errors
    /// That this is kept no more ([`RpcError::NotKept`]) if one says so, none has it, and every one could be asked, but for
    /// those that have been away, or have left this method unanswered, for five minutes: it names these, and those that refuse
    /// or are behind. Else the first refusal; else that a service is missing ([`RpcError::NoService`]) if one says so; else the
    /// last failure.
    pub async fn ask<T, E, F, Fut>(&self, ask: F) -> Result<T, E>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: AsRpcError + From<RpcError>,
    {
        let mut last = E::from(RpcError::NoEndpoint);
        let mut lacks = None;
        let mut away = None;
        let mut unheard = Vec::new();
        // One of those that are away is waited for.
        let mut comes_back = false;
        let mut refused = None;
        for id in self.order() {
            let Some(client) = self.get(id) else { continue };
            if let Err(e) = self.verify(id, client).await {
                // One that refuses to name its chain is there.
                comes_back |= e.is_silence() && !self.is_given_up(id);
                unheard.push(client.name().to_owned());
                away = Some(e.into());
                continue;
            }
            let asked = ask(client.clone()).await;
            if let Err(e) = &asked
                && let Some(silence) = e.rpc().filter(|r| r.is_silence())
            {
                self.failed(id);
                comes_back |= !self.is_given_up(id) && !client.has_given_up(silence);
                unheard.push(client.name().to_owned());
                away = asked.err();
                continue;
            }
            self.answered(id);
            match asked {
                Ok(answer) => return Ok(answer),
                // To be behind, not to execute yet, to have no such service or to keep this no more is no failure: other
                // questions are answered as well as ever.
                Err(e) if e.rpc().is_some_and(|r| r.class() == Class::Transient) => match e.rpc() {
                    Some(RpcError::NoService { .. } | RpcError::NotKept { .. }) => lacks = Some(e),
                    _ => {
                        unheard.push(client.name().to_owned());
                        last = e;
                    }
                },
                // It may be a limit or a setting of this one.
                Err(e) if e.rpc().is_some_and(|r| r.class() == Class::Rejected) => {
                    unheard.push(client.name().to_owned());
                    refused.get_or_insert(e);
                }
                Err(e) => return Err(e),
            }
        }
        let kept_no_more = |e: &E| matches!(e.rpc(), Some(RpcError::NotKept { .. }));
        Err(match (lacks, refused, away) {
            (Some(lack), _, away) if kept_no_more(&lack) => match away {
                // One that cannot be asked may have kept it, unless it is down for good.
                Some(away) if comes_back => away,
                // One that refuses, or is behind, may do so for good: who asked decides whether to ask again.
                _ => beside(lack, unheard),
            },
            (_, Some(refused), _) => refused,
            // An endpoint that is down, maybe for good, keeps nobody from knowing which service the others lack.
            (Some(lack), None, _) => lack,
            (None, None, Some(away)) => away,
            (None, None, None) => last,
        })
    }

    async fn verify(&self, id: EndpointId, client: &Client) -> Result<(), RpcError> {
        let Some(wanted) = &self.chain_id else {
            return Ok(());
        };
        let known = self.health().get(usize::from(id.0)).is_some_and(|h| h.verified);
        if known {
            return Ok(());
        }
        let status = client.status().await.inspect_err(|e| self.no_status(id, e))?;
        if self.is_ours(&status) {
            self.seen(id, status.height);
            return Ok(());
        }
        self.failed(id);
        Err(RpcError::WrongChain {
            endpoint: client.name().to_owned(),
            found: status.chain_id,
            wanted: wanted.to_string(),
        })
    }

    fn is_ours(&self, status: &Status) -> bool {
        self.chain_id.as_ref().is_none_or(|id| **id == *status.chain_id)
    }

    fn failed(&self, endpoint: EndpointId) {
        self.note(endpoint, |h| h.failed(Instant::now()));
    }

    fn answered(&self, endpoint: EndpointId) {
        self.note(endpoint, Health::answered);
    }

    /// It refuses to say how far it is, or is away.
    fn no_status(&self, endpoint: EndpointId, why: &RpcError) {
        self.failed(endpoint);
        if !why.is_silence() {
            self.answered(endpoint);
        }
    }

    fn is_given_up(&self, endpoint: EndpointId) -> bool {
        let health = self.health();
        let known = health.get(usize::from(endpoint.0));
        known.is_some_and(|h| h.is_given_up(Instant::now()))
    }

    fn note(&self, endpoint: EndpointId, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(h) = health.get_mut(usize::from(endpoint.0)) {
            change(h);
        }
    }

    fn health(&self) -> Vec<Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn order(&self) -> Vec<EndpointId> {
        let mut order: Vec<(EndpointId, Health)> = (0u16..).map(EndpointId).zip(self.health()).collect();
        order.retain(|(_, h)| !h.gone);
        let up = order.iter().filter(|(_, h)| h.failures == 0);
        let top = up.map(|(_, h)| h.height).max().unwrap_or(0);
        let late = |h: &Health| h.height.saturating_add(LATE) <= top;
        // A new block says that an endpoint is there, and nothing of a method that it leaves unanswered.
        let aside = |id: EndpointId| self.get(id).is_some_and(Client::is_aside);
        order.sort_by_cached_key(|(id, h)| (late(h), aside(*id), h.failures, std::cmp::Reverse(h.height)));
        order.into_iter().map(|(id, _)| id).collect()
    }
}

/// What is kept no more, with the endpoints that did not say.
fn beside<E: AsRpcError + From<RpcError>>(lack: E, unheard: Vec<String>) -> E {
    match lack.rpc() {
        Some(RpcError::NotKept {
            endpoint,
            what,
            reason,
            ..
        }) => E::from(RpcError::NotKept {
            endpoint: endpoint.clone(),
            what,
            reason: reason.clone(),
            unheard,
        }),
        _ => lack,
    }
}

fn clients<S: AsRef<str>>(urls: &[S], options: &ClientOptions) -> Result<Vec<Client>, RpcError> {
    let clients: Vec<Client> = urls
        .iter()
        .map(|u| Client::new(u.as_ref(), options.clone()))
        .collect::<Result<_, _>>()?;
    if clients.is_empty() || clients.len() > usize::from(u16::MAX) - SPARE {
        return Err(RpcError::NoEndpoint);
    }
    Ok(clients)
}

/// Errors that may come from the transport.
pub trait AsRpcError {
    /// The transport's error, if it is one.
    fn rpc(&self) -> Option<&RpcError>;
}

impl AsRpcError for RpcError {
    fn rpc(&self) -> Option<&RpcError> {
        Some(self)
    }
}
