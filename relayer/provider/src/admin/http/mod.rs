//! The admin listener: `/api/v1/admin/…` for those who hold a credential, each with its role. One table holds every
//! path; router and OpenAPI document are made from it, so that neither can have one that the other lacks.

mod act;
mod answer;
mod body;
mod call;
mod guard;
mod list;
mod listener;
mod look;
mod routes;
mod secrets;
mod slots;
mod which;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use hpc_chain::keys::SharedSigner;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

pub(crate) use answer::ALWAYS;
use call::Pace;
pub(crate) use call::{Shape, Spec};
pub use listener::serve;
pub(crate) use routes::{PREFIX, endpoints};

use super::Admin;
use super::credential::Known;
use crate::admission::Limiter;
use crate::clock;
use crate::config::Live;
use crate::gateway::{Gateway, Once};
use crate::home::Home;
use crate::ops::Health;
use crate::store::{News, Store};

/// Requests without a credential that counts, of one address within a minute, that are told so; beyond, it has to wait.
/// Whoever shows one that counts never waits for others of the same address.
const FAILURES_PER_MINUTE: u32 = 20;
/// Keys that a limiter remembers.
const LIMITER_KEYS: usize = 4096;
/// Requests that are worked on at a time: that ask the store, that wait for a block, that wait for news.
const AT_ONCE: (usize, usize, usize) = (32, 8, 16);

/// Everything that a request needs.
#[derive(Debug)]
pub struct Api {
    home: Home,
    config: Live,
    store: Store,
    operator: SharedSigner,
    gateway: Weak<Gateway>,
    credentials: Arc<Known>,
    health: Arc<Health>,
    requests: Limiter<String>,
    failures: Limiter<IpAddr>,
    places: Places,
    news: News,
    once: Once,
    /// The OpenAPI document.
    document: Map<String, Value>,
}

/// Places of those that are worked on, by what they wait for.
#[derive(Debug)]
struct Places {
    soon: Arc<Semaphore>,
    block: Arc<Semaphore>,
    news: Arc<Semaphore>,
}

impl Places {
    fn of(&self, pace: Pace) -> Arc<Semaphore> {
        Arc::clone(match pace {
            Pace::Soon => &self.soon,
            Pace::Block => &self.block,
            Pace::News => &self.news,
        })
    }
}

impl Api {
    /// From its parts: the store and the operator key, opened; the gateway beside it and the credentials that it was shown; `document` is the OpenAPI document.
    #[must_use]
    pub fn new(
        home: Home,
        config: Live,
        (store, operator): (Store, SharedSigner),
        (gateway, credentials): (Weak<Gateway>, Arc<Known>),
        health: Arc<Health>,
        document: Value,
    ) -> Self {
        let per_minute = config.get().admin.requests_per_minute;
        let news = store.news();
        Self {
            home,
            config,
            store,
            operator,
            gateway,
            credentials,
            health,
            requests: Limiter::new(per_minute, LIMITER_KEYS),
            failures: Limiter::new(FAILURES_PER_MINUTE, LIMITER_KEYS),
            places: Places {
                soon: Arc::new(Semaphore::new(AT_ONCE.0)),
                block: Arc::new(Semaphore::new(AT_ONCE.1)),
                news: Arc::new(Semaphore::new(AT_ONCE.2)),
            },
            news,
            once: Once::default(),
            document: match document {
                Value::Object(members) => members,
                _ => Map::new(),
            },
        }
    }

    /// Logs that an address is refused something, once.
    fn log_once(&self, from: IpAddr, what: &'static str) {
        if let Some(before) = self.once.note(from, what, clock::steady()) {
            tracing::warn!(%from, passed_over = before, "refused: {what}; the same from there is not logged for ten minutes");
        }
    }

    /// The desk, with the configuration that counts now.
    fn desk(&self) -> Admin {
        Admin {
            home: self.home.clone(),
            config: (*self.config.get()).clone(),
            store: self.store.clone(),
            operator: Some(Arc::clone(&self.operator)),
            gateway: Weak::clone(&self.gateway),
        }
    }
}
