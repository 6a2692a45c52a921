//! What a gateway hands out is looked at before it is written down: a certificate that cannot work must not replace one
//! that does.

use std::sync::Arc;
use std::time::Duration;

use hpc_schema::id::{ClusterId, NodeId};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use super::{CaPin, Identity, provider};

/// Why an issued certificate is not taken.
#[derive(Debug, thiserror::Error)]
pub enum IssuedError {
    /// The CA in the answer is another one than that of the registration token.
    #[error(
        "the gateway's CA is not the one that the registration token pins ({pin}); if the gateway has a new CA, register again with a new token"
    )]
    OtherCa {
        /// The fingerprint of the token.
        pin: CaPin,
    },
    /// It names somebody else.
    #[error("the certificate names another node")]
    OtherNode,
    /// Not signed by a trusted CA, not for clients, or expired.
    #[error("the certificate does not lead to a CA that this node trusts, or is not valid now: {0}")]
    Invalid(String),
}

/// The CAs in the PEM of an answer; what can vouch for nothing is left out.
#[must_use]
pub fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .filter(can_vouch)
        .collect()
}

/// Whether it is a CA's: it says so, or is older than that word (RFC 5280, section 4.2.1.9).
#[must_use]
pub fn is_ca(certificate: &CertificateDer<'static>) -> bool {
    let says = |c: &X509Certificate<'_>| c.is_ca() || c.version() == X509Version::V1;
    can_vouch(certificate) && X509Certificate::from_der(certificate).is_ok_and(|(_, c)| says(&c))
}

/// Whether it can be a CA's at all.
fn can_vouch(certificate: &CertificateDer<'static>) -> bool {
    RootCertStore::empty().add(certificate.clone()).is_ok()
}

/// The CA among `sent` that a token pins.
///
/// # Errors
/// [`IssuedError::OtherCa`].
pub fn pinned(sent: &[CertificateDer<'static>], pin: CaPin) -> Result<CertificateDer<'static>, IssuedError> {
    let found = sent.iter().find(|c| pin.matches(c)).cloned();
    found.ok_or(IssuedError::OtherCa { pin })
}

/// Looks at a certificate that was issued for our key ([`Identity::from_pem`] has compared the two): its node, its
/// chain to one of the CAs `trusted`, its use, and that it has not expired at `now` (UNIX seconds). One that begins in
/// the future counts: our clock may be behind.
///
/// # Errors
/// See [`IssuedError`].
pub fn check_issued(
    identity: &Identity,
    trusted: &[CertificateDer<'static>],
    (cluster, node): (&ClusterId, &NodeId),
    now: u64,
) -> Result<(), IssuedError> {
    if identity.names().is_none_or(|(c, n)| c != cluster || n != node) {
        return Err(IssuedError::OtherNode);
    }
    let invalid = |e: &dyn std::fmt::Display| IssuedError::Invalid(e.to_string());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| invalid(&e))?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now.max(identity.not_before())));
    let (leaf, rest) = identity
        .chain()
        .split_first()
        .ok_or_else(|| invalid(&"it is empty"))?;
    verifier
        .verify_client_cert(leaf, rest, at)
        .map(drop)
        .map_err(|e| invalid(&e))
}
