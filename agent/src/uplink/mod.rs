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
mod others;
mod pin;
mod tls;

pub use anchors::{MOST_CAS, Shown, to_pem};
pub use backoff::Backoff;
pub use client::{Answer, Client};
pub use connect::{Dial, Dialing, Stream};
pub use error::{TlsCause, UplinkError};
pub use identity::{Identity, IdentityError, newest};
pub use issued::{IssuedError, certificates, check_issued, is_ca, pinned};
pub use pin::{CaPin, Known, Trust, read_known};
pub use tls::{TlsError, client_config, provider};

#[cfg(test)]
pub(crate) use anchors::tests::ca;
