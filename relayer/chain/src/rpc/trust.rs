//! Whom an endpoint's certificate has to come from.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// These CAs, and no others: for requests and for the websocket alike. Without it the system's count.
#[derive(Clone)]
pub struct Trust {
    requests: Vec<reqwest::Certificate>,
    websocket: Arc<ClientConfig>,
}

/// Text that holds no CA.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; it must hold CA certificates in PEM")]
pub struct TrustError(String);

impl Trust {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    /// [`TrustError`] if there is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        let bad = |e: &dyn fmt::Display| TrustError(e.to_string());
        let ders: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|e| bad(&e))?;
        if ders.is_empty() {
            return Err(bad(&"there is no certificate in it"));
        }
        let mut roots = RootCertStore::empty();
        let mut requests = Vec::new();
        for der in ders {
            requests.push(reqwest::Certificate::from_der(&der).map_err(|e| bad(&e))?);
            roots.add(der).map_err(|e| bad(&e))?;
        }
        let websocket = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            requests,
            websocket: Arc::new(websocket),
        })
    }

    pub(super) fn requests(&self) -> &[reqwest::Certificate] {
        &self.requests
    }

    pub(super) fn websocket(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.websocket)
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("certificates", &self.requests.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_certificate_is_no_trust() {
        for bad in [
            "",
            "hello",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let said = Trust::from_pem(bad.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("in PEM"), "{bad:?}: {said}");
        }
    }
}
