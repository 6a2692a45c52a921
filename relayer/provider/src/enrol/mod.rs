//! Enrolling nodes: tokens that were made, registrations under way, certificates that were issued.

mod certificates;
mod join;
mod listed;
mod network;
mod outside;
mod prune;
mod registration;
#[cfg(test)]
mod tests;
mod tokens;

pub use certificates::{
    NoRoom, Which, certificate_is_revoked, of_serial, record_certificate, revoke_certificates,
    revoked_fingerprints,
};
pub use join::{JoinRow, JoinTerms, Joined, insert_join, join, list_joins, revoke_join, use_id};
pub use listed::{CertificateRow, certificates};
pub use network::{Network, NetworkError};
pub use outside::{Outside, record_outside};
pub use prune::prune;
pub use registration::{
    Applicant, Claimed, NewRegistration, REJECTED, Registration, RegistrationState, approve, bind_to_batch,
    claim, end_disabled, hardware, held, held_of, in_batch, on_chain as record_on_chain, queued,
    refused as record_refused, reject, release, store_certificate,
};
pub use tokens::{Revoked, TokenRow, TokenState, find, insert, list, revoke};
