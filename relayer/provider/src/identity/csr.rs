use rcgen::{CertificateSigningRequestParams, PublicKey};
use x509_parser::pem::Pem;

/// Longest request (PEM) that is looked at.
const MAX_CSR_BYTES: usize = 8192;

/// A certificate request of which only the key counts: its signature has been verified, its subject
/// and extensions are thrown away.
#[derive(Debug, Clone)]
pub struct NodeCsr {
    der: Vec<u8>,
    pub(super) key: PublicKey,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// Not one PEM block `CERTIFICATE REQUEST` of bounded size.
    #[error("csr must be one PEM block CERTIFICATE REQUEST of at most 8192 bytes")]
    Pem,
    /// The request does not parse, or is not signed by its own key.
    #[error("csr does not parse or is not signed by its own key (ECDSA P-256, P-384 or Ed25519)")]
    Request,
}

impl NodeCsr {
    /// Reads a request and verifies that its sender holds its key.
    ///
    /// # Errors
    /// [`CsrError`].
    pub fn from_pem(pem: &str) -> Result<Self, CsrError> {
        if pem.len() > MAX_CSR_BYTES {
            return Err(CsrError::Pem);
        }
        let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
        let block = blocks.next().and_then(Result::ok).ok_or(CsrError::Pem)?;
        if blocks.next().is_some() || block.label != "CERTIFICATE REQUEST" {
            return Err(CsrError::Pem);
        }
        let der = block.contents;
        let request = CertificateSigningRequestParams::from_der(&der.as_slice().into())
            .map_err(|_| CsrError::Request)?;
        let algorithm = request.public_key.algorithm();
        if ![
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
        ]
        .contains(&algorithm)
        {
            return Err(CsrError::Request);
        }
        Ok(Self {
            der,
            key: request.public_key,
        })
    }

    /// The request as it came, DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}
