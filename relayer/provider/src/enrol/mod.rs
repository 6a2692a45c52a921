//! Enrolling nodes: tokens that were made, registrations under way, certificates that were issued.

mod certificates;
mod registrations;
mod tokens;

pub use certificates::record_certificate;
pub use registrations::{
    Claimed, NewRegistration, Registration, RegistrationState, bind_to_batch, claim, in_batch,
    on_chain as record_on_chain, queued, refused as record_refused, release, store_certificate,
};
pub use tokens::{TokenRow, TokenState, find, insert, list, revoke};
