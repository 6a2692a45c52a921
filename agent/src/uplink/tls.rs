use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::Identity;
use super::pin::PinnedCa;

/// Why no TLS can be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file is missing or holds no certificate.
    #[error(
        "provider_daemon.tls.ca_cert {path}: {message}; register the node, or put the gateway's CA there"
    )]
    Ca {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// rustls refused.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// What the gateway's certificate must lead to.
#[derive(Debug, Clone)]
pub enum Trust {
    /// One of these CA certificates.
    Roots(Vec<CertificateDer<'static>>),
    /// The CA with this fingerprint (SHA-256 of its DER), sent by the gateway or among `known`.
    Pinned {
        /// From the registration token.
        sha256: [u8; 32],
        /// Certificates of the CA file, if there is one.
        known: Vec<CertificateDer<'static>>,
    },
}

impl Trust {
    /// Trust in the certificates of a PEM file.
    ///
    /// # Errors
    /// [`TlsError::Ca`].
    pub fn file(path: &Path) -> Result<Self, TlsError> {
        let fail = |message: String| TlsError::Ca {
            path: path.display().to_string(),
            message,
        };
        let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|e| fail(e.to_string()))?;
        if certificates.is_empty() {
            return Err(fail("holds no certificate".into()));
        }
        Ok(Self::Roots(certificates))
    }
}

/// The cryptography in use: ring.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A client's TLS: TLS 1.2 and 1.3, the given trust, this node's certificate unless `None`.
///
/// # Errors
/// [`TlsError`].
pub fn client_config(trust: Trust, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Roots(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots)
        }
        Trust::Pinned { sha256, known } => {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(PinnedCa {
                    sha256,
                    known,
                    provider,
                }))
        }
    };
    let mut config = match identity {
        Some(id) => builder.with_client_auth_cert(id.chain().to_vec(), id.key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
