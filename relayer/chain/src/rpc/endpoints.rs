//! Several endpoints of one chain: which one to ask, and the next one if it fails.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use super::client::{Client, ClientOptions};
use super::error::RpcError;
use super::types::Status;
use crate::code::Class;
use crate::settle::EndpointId;

/// The operator's endpoints in their order. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Endpoints {
    clients: Arc<[Client]>,
    health: Arc<Mutex<Vec<Health>>>,
}

/// What is known of one endpoint.
#[derive(Debug, Clone, Copy, Default)]
struct Health {
    height: u64,
    failures: u32,
}

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
        let clients: Vec<Client> = urls
            .iter()
            .map(|u| Client::new(u.as_ref(), options))
            .collect::<Result<_, _>>()?;
        if clients.is_empty() || clients.len() > usize::from(u16::MAX) {
            return Err(RpcError::NoEndpoint);
        }
        let health = Arc::new(Mutex::new(vec![Health::default(); clients.len()]));
        Ok(Self {
            clients: clients.into(),
            health,
        })
    }

    /// All endpoints with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (EndpointId, &Client)> {
        (0u16..).map(EndpointId).zip(self.clients.iter())
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: EndpointId) -> Option<&Client> {
        self.clients.get(usize::from(id.0))
    }

    /// The one to ask first: without failures, with the highest block, in the operator's order.
    #[must_use]
    pub fn best(&self) -> Option<&Client> {
        self.order().first().and_then(|i| self.clients.get(*i))
    }

    /// Asks every endpoint for its newest block, all at once.
    pub async fn heads(&self) -> Vec<Head> {
        let mut tasks = tokio::task::JoinSet::new();
        for (endpoint, client) in self.iter() {
            let client = client.clone();
            tasks.spawn(async move {
                Head {
                    endpoint,
                    status: client.status().await,
                }
            });
        }
        let mut heads = Vec::new();
        while let Some(done) = tasks.join_next().await {
            if let Ok(head) = done {
                self.note(head.endpoint, head.status.as_ref().ok().map(|s| s.height));
                heads.push(head);
            }
        }
        heads.sort_by_key(|h| h.endpoint);
        heads
    }

    /// Calls `ask` on the best endpoint, and on the next one while the failure is transient.
    ///
    /// # Errors
    /// The last failure.
    pub async fn ask<T, E, F, Fut>(&self, ask: F) -> Result<T, E>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: AsRpcError + From<RpcError>,
    {
        let mut last = E::from(RpcError::NoEndpoint);
        for index in self.order() {
            let Some(client) = self.clients.get(index) else {
                continue;
            };
            match ask(client.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(e) if e.rpc().is_some_and(|r| r.class() == Class::Transient) => {
                    if let Ok(id) = u16::try_from(index) {
                        self.note(EndpointId(id), None);
                    }
                    last = e;
                }
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }

    fn note(&self, endpoint: EndpointId, height: Option<u64>) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(h) = health.get_mut(usize::from(endpoint.0)) {
            match height {
                Some(height) => *h = Health { height, failures: 0 },
                None => h.failures = h.failures.saturating_add(1),
            }
        }
    }

    fn order(&self) -> Vec<usize> {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.sort_by_key(|i| {
            let h = health.get(*i).copied().unwrap_or_default();
            (h.failures, std::cmp::Reverse(h.height))
        });
        order
    }
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
