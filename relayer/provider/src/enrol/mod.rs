//! Enrolling nodes: tokens that were made, registrations under way, certificates that were issued.

mod certificates;
mod registration;
mod tokens;

pub use certificates::{
    CertificateRow, Which, certificates, record_certificate, revoke_certificates, revoked_serials,
};
pub use registration::{
    Claimed, NewRegistration, Registration, RegistrationState, bind_to_batch, claim, in_batch,
    on_chain as record_on_chain, queued, refused as record_refused, release, store_certificate,
};
pub use tokens::{Revoked, TokenRow, TokenState, find, insert, list, revoke};
