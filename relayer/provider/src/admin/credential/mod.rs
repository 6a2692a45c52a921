//! Who may use the admin listener: bearer tokens with a role and an expiry. Of each only its SHA-256 is kept; the
//! secret has 256 bits, so that nothing slower is needed.

mod desk;
mod known;
mod rows;
mod secret;

pub use desk::{MAX_LIFE_SECONDS, Made, NewCredential};
pub use known::Known;
pub use rows::{Credential, CredentialState};
pub use secret::{Presented, Secret};
