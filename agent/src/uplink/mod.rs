//! The way to the gateway: TLS with a pinned CA, one kept-alive connection, failover, backoff.

mod backoff;
mod client;
mod connect;
mod date;
mod error;
mod failback;
mod identity;
mod issued;
mod pin;
mod tls;

pub use backoff::Backoff;
pub use client::{Answer, Client};
pub use connect::{Dial, Dialing, Stream};
pub use error::{TlsCause, UplinkError};
pub use identity::{Identity, IdentityError, newest};
pub use issued::{IssuedError, check_issued};
pub use pin::{CaPin, Known};
pub use tls::{TlsError, Trust, client_config, provider, read_known};
