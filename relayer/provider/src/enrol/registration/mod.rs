//! One registration a token: from the agent's request to the chain's answer.

mod approval;
mod batch;
mod claim;
mod hardware;
mod row;

pub use approval::{approve, held};
pub(super) use batch::end_revoked;
pub use batch::{bind_to_batch, in_batch, on_chain, queued, refused, release, store_certificate};
pub use claim::{Claimed, claim};
pub use hardware::hardware;
pub use row::{NewRegistration, Registration, RegistrationState};
