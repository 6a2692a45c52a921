//! Node registration: the identity a provider vouches for, and the bytes that are signed
//! (specification 000 "Identity Registration", protocol decisions 2 and 3).

mod account;
mod adr036;
mod canonical;
mod identity;
mod rotation;

pub use account::account_of;
pub use adr036::adr036_sign_bytes;
pub use canonical::canonical_registration;
pub use identity::{FieldError, NodeIdentity};
pub use rotation::{key_rotation_message, task_key_rotation_message};

/// Domain of the canonical registration JSON.
pub const REGISTRATION_DOMAIN: &str = "hpc-node-registration-v1";
/// A registration is valid for this long around block time.
pub const REGISTRATION_WINDOW_SECONDS: u64 = 24 * 3600;
