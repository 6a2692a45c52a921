//! The way to the gateway: TLS with a pinned CA, one kept-alive connection, failover, backoff.

mod backoff;
mod client;
mod identity;
mod pin;
mod tls;

pub use backoff::Backoff;
pub use client::{Answer, Client, UplinkError};
pub use identity::{Identity, IdentityError, newest};
pub use tls::{TlsError, Trust, client_config, provider};
