//! Who is who: the gateway's CA, certificates of nodes, registration tokens, and the keys that sign.

mod anchors;
mod ca;
mod csr;
mod peer;
mod seed;
mod token;
mod token_keys;

pub use anchors::{AnchorError, Anchors};
pub(crate) use ca::SERVER_LIFETIME_SECONDS;
pub use ca::{Ca, CaError, Issued, NodeSubject, server_names};
pub use csr::{CsrError, NodeCsr};
pub use peer::{IssuedBy, PeerError, PeerIdentity};
pub use seed::{Seed, SeedError};
pub use token::{Claims, Token, TokenError, TokenKey};
pub use token_keys::{TokenKeys, Verifying};
