//! Who is who: the gateway's CA, certificates of nodes, registration tokens, and the keys that sign.

mod anchors;
mod ca;
mod csr;
mod peer;
mod seed;
mod token;
mod token_keys;

pub(crate) use anchors::trusted_files;
pub use anchors::{AnchorError, Anchors};
pub use ca::{Ca, CaError, Issued, NodeSubject, server_names};
pub use csr::{CsrError, NodeCsr};
pub use peer::{IssuedBy, PeerError, PeerIdentity};
pub use seed::{Seed, SeedError};
pub use token::{Claims, Token, TokenError, TokenKey};
pub use token_keys::{TokenKeys, Verifying};
