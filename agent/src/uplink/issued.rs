//! What a gateway hands out is looked at before it is written down: a certificate that cannot work must not replace one
//! that does.

use std::sync::Arc;
use std::time::Duration;

use hpc_schema::id::{ClusterId, NodeId};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;

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
    /// Not signed by the pinned CA, not for clients, or expired.
    #[error("the certificate does not lead to the pinned CA, or is not valid now: {0}")]
    Invalid(String),
}

/// Looks at a certificate that was issued for our key ([`Identity::from_pem`] has compared the two): its node, its
/// chain to the pinned CA in `ca` (PEM), its use, and that it has not expired at `now` (UNIX seconds). One that begins
/// in the future counts: our clock may be behind.
///
/// # Errors
/// See [`IssuedError`].
pub fn check_issued(
    identity: &Identity,
    ca: &str,
    pin: CaPin,
    (cluster, node): (&ClusterId, &NodeId),
    now: u64,
) -> Result<(), IssuedError> {
    if identity.names().is_none_or(|(c, n)| c != cluster || n != node) {
        return Err(IssuedError::OtherNode);
    }
    let sent: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(ca.as_bytes())
        .filter_map(Result::ok)
        .collect();
    let ca = pin.find(sent.iter()).ok_or(IssuedError::OtherCa { pin })?;
    let invalid = |e: &dyn std::fmt::Display| IssuedError::Invalid(e.to_string());
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|e| invalid(&e))?;
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
