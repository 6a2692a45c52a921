//! Trust in CAs, known by their fingerprints: the registration token carries the first one.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Certificates of a CA file, shared by all that trust one of them.
pub type Known = Arc<[CertificateDer<'static>]>;

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

/// SHA-256 of the DER of the gateway's CA certificate; lower-case hex in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CaPin([u8; 32]);

impl CaPin {
    /// Of this certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate.as_ref()).into())
    }

    /// Whether this certificate is the one.
    #[must_use]
    pub fn matches(&self, certificate: &CertificateDer<'_>) -> bool {
        Self::of(certificate) == *self
    }
}

/// Not a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not hex of 32 bytes")]
pub struct CaPinError;

impl FromStr for CaPin {
    type Err = CaPinError;
    fn from_str(s: &str) -> Result<Self, CaPinError> {
        let mut bytes = [0u8; 32];
        hex::decode_to_slice(s, &mut bytes).map_err(|_| CaPinError)?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for CaPin {
    type Error = CaPinError;
    fn try_from(s: String) -> Result<Self, CaPinError> {
        s.parse()
    }
}

impl From<CaPin> for String {
    fn from(pin: CaPin) -> Self {
        hex::encode(pin.0)
    }
}

impl fmt::Display for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// The CAs that are trusted: the gateway's certificate must lead to one of them, sent by the gateway or known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// Their fingerprints.
    pub pins: Vec<CaPin>,
    /// Certificates that are known; those with such a fingerprint count.
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

    /// Their certificates, as far as they are known.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let trusted = self.known.iter().filter(|c| self.has(c));
        trusted.cloned().collect()
    }

    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        self.pins.contains(&CaPin::of(certificate))
    }
}

/// Accepts a server whose chain leads to a CA that is trusted by the usual rules (signatures, names, validity).
#[derive(Debug)]
pub(super) struct PinnedCa {
    pub(super) trust: Trust,
    pub(super) provider: Arc<CryptoProvider>,
}

impl PinnedCa {
    /// Those of the CAs that are known, or sent along: a gateway need not send what we have.
    fn roots(&self, sent: &[CertificateDer<'_>]) -> RootCertStore {
        let sent = sent.iter().filter(|c| self.trust.has(c));
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.trust.certificates());
        roots.add_parsable_certificates(sent.map(|c| c.clone().into_owned()));
        roots
    }
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let roots = self.roots(intermediates);
        if roots.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
                .build()
                .map_err(|e| Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
