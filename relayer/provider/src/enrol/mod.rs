//! Enrolling nodes: tokens that were made, registrations under way, certificates that were issued.

mod certificates;
mod join;
mod network;
mod registration;
mod tokens;

pub use certificates::{
    CertificateRow, Which, certificates, of_serial, record_certificate, record_outside, revoke_certificates,
    revoked_fingerprints,
};
pub use join::{JoinRow, JoinTerms, Joined, insert_join, join, list_joins, revoke_join, use_id};
pub use network::{Network, NetworkError};
pub use registration::{
    Claimed, NewRegistration, Registration, RegistrationState, approve, bind_to_batch, claim, hardware, held,
    in_batch, on_chain as record_on_chain, queued, refused as record_refused, release, store_certificate,
};
pub use tokens::{Revoked, TokenRow, TokenState, find, insert, list, revoke};
