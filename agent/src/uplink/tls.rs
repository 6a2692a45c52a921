use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, version};

use super::pin::PinnedCa;
use super::{Identity, Trust};
use crate::clock::Clock;

/// Why no TLS can be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refused.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
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
    let provider = provider();
    let verifier = PinnedCa {
        trust,
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
