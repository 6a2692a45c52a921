use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, version};

use super::pin::PinnedCa;
use super::{CaPin, Identity, Known};
use crate::clock::Clock;

/// Why no TLS can be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refused.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Longer than any bundle of a system's CAs.
const LIMIT: u64 = 4 << 20;

/// The certificates in a CA file; none if it cannot be read.
#[must_use]
pub fn read_known(file: &Path) -> Option<Known> {
    let mut pem = Vec::new();
    File::open(file).ok()?.take(LIMIT).read_to_end(&mut pem).ok()?;
    let all = CertificateDer::pem_slice_iter(&pem);
    Some(all.filter_map(Result::ok).collect())
}

/// What the gateway's certificate must lead to: one of these CAs, sent by the gateway or known from a file.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Their fingerprints.
    pub pins: Vec<CaPin>,
    /// Certificates of the CA file, if there is one; of them only the pinned ones count.
    pub known: Known,
}

impl Trust {
    /// The CAs with these fingerprints; `file` may hold them. A file that is missing or holds something else is no
    /// trouble: the gateway sends its CA.
    #[must_use]
    pub fn new(pins: Vec<CaPin>, file: &Path) -> Self {
        Self {
            pins,
            known: read_known(file).unwrap_or_default(),
        }
    }
}

/// The cryptography in use: ring.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_epoch()))
    }
}

/// A client's TLS: 1.3 (the protocol asks for it), the given trust, this node's certificate unless `None`.
///
/// # Errors
/// [`TlsError`].
pub fn client_config(
    trust: Trust,
    identity: Option<&Identity>,
    clock: &Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let Trust { pins, known } = trust;
    let provider = provider();
    let verifier = PinnedCa {
        pins,
        known,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some(id) => builder.with_client_auth_cert(id.chain().to_vec(), id.key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
