//! One registration a token: from the agent's request to the chain's answer.

mod approval;
mod batch;
mod claim;
mod hardware;
mod row;

pub(super) use approval::is_rejected;
pub use approval::{Applicant, REJECTED, approve, held, held_of, reject};
pub(super) use batch::end_revoked;
pub use batch::{
    bind_to_batch, end_disabled, in_batch, on_chain, queued, refused, release, store_certificate,
};
pub use claim::{Claimed, claim};
pub use hardware::hardware;
pub use row::{NewRegistration, Registration, RegistrationState};
