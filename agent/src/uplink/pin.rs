//! Trust in a CA of which only the fingerprint is known, as at registration: the token carries it.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// Accepts a server whose chain holds the CA with this fingerprint, and leads to it by the usual rules (signatures,
/// names, validity).
#[derive(Debug)]
pub(super) struct PinnedCa {
    pub(super) sha256: [u8; 32],
    /// CA certificates known from a file: a gateway need not send what we have.
    pub(super) known: Vec<CertificateDer<'static>>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl PinnedCa {
    fn pinned<'a>(&'a self, sent: &'a [CertificateDer<'_>]) -> Option<CertificateDer<'static>> {
        let matches = |c: &&CertificateDer<'_>| <[u8; 32]>::from(Sha256::digest(c.as_ref())) == self.sha256;
        let known = self.known.iter().find(|c| matches(c)).cloned();
        known.or_else(|| sent.iter().find(matches).map(|c| c.clone().into_owned()))
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
        let ca = self
            .pinned(intermediates)
            .ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
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
