//! The admin listener: `/api/v1/admin/…` for those who hold a credential, each with its role. One table holds every
//! path; router and OpenAPI document are made from it, so that neither can have one that the other lacks.

mod act;
mod answer;
mod body;
mod call;
mod guard;
mod listener;
mod look;
mod routes;
mod secrets;
mod slots;

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use answer::ALWAYS;
pub(crate) use call::{Shape, Spec};
pub use listener::serve;
pub(crate) use routes::{PREFIX, endpoints};

use super::Admin;
use crate::admission::Limiter;
use crate::config::Live;
use crate::home::Home;
use crate::ops::Health;
use crate::store::Store;

/// Requests without a credential that counts, of one address within a minute, that are told so; beyond, it has to wait.
/// Whoever shows one that counts never waits for others of the same address.
const FAILURES_PER_MINUTE: u32 = 20;
/// Keys that a limiter remembers.
const LIMITER_KEYS: usize = 4096;
/// Requests that are worked on at a time.
const AT_ONCE: usize = 32;

/// Everything that a request needs.
#[derive(Debug)]
pub struct Api {
    home: Home,
    config: Live,
    store: Store,
    health: Arc<Health>,
    requests: Limiter<String>,
    failures: Limiter<IpAddr>,
    places: Arc<Semaphore>,
}

impl Api {
    /// From its parts.
    #[must_use]
    pub fn new(home: Home, config: Live, store: Store, health: Arc<Health>) -> Self {
        let per_minute = config.get().admin.requests_per_minute;
        Self {
            home,
            config,
            store,
            health,
            requests: Limiter::new(per_minute, LIMITER_KEYS),
            failures: Limiter::new(FAILURES_PER_MINUTE, LIMITER_KEYS),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The desk, with the configuration that counts now.
    fn desk(&self) -> Admin {
        Admin {
            home: self.home.clone(),
            config: (*self.config.get()).clone(),
            store: self.store.clone(),
        }
    }
}
