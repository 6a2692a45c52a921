//! This node's client certificate: read from where `register` wrote it and from the state directory, the newest valid
//! one wins.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::gateway::parse_certificate_uri;
use hpc_schema::id::{ClusterId, NodeId};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::files::{FileError, read_text};

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not PEM, not X.509, without key, or key and certificate do not belong together.
    #[error("{path}: {message}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
}

/// A certificate with its key.
pub struct Identity {
    path: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    not_before: u64,
    not_after: u64,
    names: Option<(ClusterId, NodeId)>,
    epoch: Option<u64>,
}

impl Identity {
    /// Reads a certificate chain and a key, from one file or two.
    ///
    /// # Errors
    /// IO, unusable.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let certificate_pem = read_text(certificate, 256 << 10)?;
        let key_pem = Zeroizing::new(read_text(key, 256 << 10)?);
        Self::from_pem(certificate, &certificate_pem, &key_pem)
    }

    /// From PEM texts; `path` is for messages.
    ///
    /// # Errors
    /// Unusable.
    pub fn from_pem(path: &Path, certificate: &str, key: &str) -> Result<Self, IdentityError> {
        let fail = |message: String| IdentityError::Unusable {
            path: path.display().to_string(),
            message,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| fail(format!("not a PEM certificate: {e}")))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|e| fail(format!("not a PEM private key: {e}")))?;
        let leaf = chain.first().ok_or_else(|| fail("holds no certificate".into()))?;
        let (_, parsed) =
            X509Certificate::from_der(leaf).map_err(|e| fail(format!("not an X.509 certificate: {e}")))?;
        let seconds = |t: i64| u64::try_from(t).unwrap_or(0);
        let validity = parsed.validity();
        let (not_before, not_after) = (
            seconds(validity.not_before.timestamp()),
            seconds(validity.not_after.timestamp()),
        );
        let names = parsed.subject_alternative_name().ok().flatten().and_then(|san| {
            san.value.general_names.iter().find_map(|name| match name {
                GeneralName::URI(uri) => parse_certificate_uri(uri),
                _ => None,
            })
        });
        let epoch = parsed
            .subject()
            .iter_by_oid(&OID_X509_SERIALNUMBER)
            .find_map(|a| a.as_str().ok()?.parse().ok());
        // rustls refuses a key that is not the certificate's.
        let signing =
            rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| fail(e.to_string()))?;
        rustls::sign::CertifiedKey::new(chain.clone(), signing)
            .keys_match()
            .map_err(|_| fail("certificate and private key do not belong together".into()))?;
        Ok(Self {
            path: path.to_owned(),
            chain,
            key,
            not_before,
            not_after,
            names,
            epoch,
        })
    }

    /// Where it came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cluster and node that it names.
    #[must_use]
    pub fn names(&self) -> Option<&(ClusterId, NodeId)> {
        self.names.as_ref()
    }

    /// The registration epoch that it counts for, if it says so.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Valid from, in UNIX seconds.
    #[must_use]
    pub fn not_before(&self) -> u64 {
        self.not_before
    }

    /// Valid until, in UNIX seconds.
    #[must_use]
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// Whether it is valid at `now` (UNIX seconds). A certificate from the future counts: our clock may be behind.
    #[must_use]
    pub fn is_valid(&self, now: u64) -> bool {
        now < self.not_after
    }

    /// When two thirds of its life are over, in UNIX seconds.
    #[must_use]
    pub fn renew_at(&self) -> u64 {
        self.not_after.saturating_sub(self.life().as_secs() / 3)
    }

    /// From its first moment to its last.
    #[must_use]
    pub fn life(&self) -> Duration {
        Duration::from_secs(self.not_after.saturating_sub(self.not_before))
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("path", &self.path)
            .field("not_after", &self.not_after)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// The certificate with the latest end among those that can be read; expired ones count last. Also says why others
/// could not be read.
#[must_use]
pub fn newest(candidates: &[(&Path, &Path)]) -> (Option<Identity>, Vec<IdentityError>) {
    let mut problems = Vec::new();
    let mut best: Option<Identity> = None;
    for (certificate, key) in candidates {
        match Identity::load(certificate, key) {
            Ok(found) => {
                if best.as_ref().is_none_or(|b| found.not_after > b.not_after) {
                    best = Some(found);
                }
            }
            Err(IdentityError::File(e)) if e.source.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => problems.push(e),
        }
    }
    (best, problems)
}
