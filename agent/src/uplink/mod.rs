//! The way to the gateway: TLS with pinned CAs, one kept-alive connection, failover, backoff.

mod anchors;
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

pub use anchors::{Anchors, Shown};
pub use backoff::Backoff;
pub use client::{Answer, Client};
pub use connect::{Dial, Dialing, Stream};
pub use error::{TlsCause, UplinkError};
pub use identity::{Identity, IdentityError, newest};
pub use issued::{IssuedError, certificates, check_issued, pinned};
pub use pin::{CaPin, Known};
pub use tls::{TlsError, Trust, client_config, provider, read_known};
