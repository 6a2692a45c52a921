use std::path::{Path, PathBuf};

use hpc_schema::time::UnixSeconds;

use super::Ca;
use super::ca::first_certificate;

/// Other CAs trusted at most: the one before and the one to come, with room.
const MAX_OTHERS: usize = 8;

/// The CAs whose certificates count: the gateway's own, and during a change of CA others beside it.
#[derive(Debug, Clone)]
pub struct Anchors {
    ders: Vec<Vec<u8>>,
    bundle: String,
}

/// A file of trusted CAs that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no certificate of a CA, or its time is over.
    #[error("{}: must be one PEM certificate of a CA within its time", .0.display())]
    Content(PathBuf),
    /// There are too many.
    #[error("{}: holds more than {MAX_OTHERS} certificates; remove those of past CAs", .0.display())]
    TooMany(PathBuf),
}

impl Anchors {
    /// The gateway's CA and the certificates `*.crt` of a directory, which need not exist.
    ///
    /// # Errors
    /// [`AnchorError`]: one that cannot be used refuses all.
    pub fn load(ca: &Ca, dir: &Path, now: UnixSeconds) -> Result<Self, AnchorError> {
        let mut anchors = Self {
            ders: vec![ca.der().to_vec()],
            bundle: ca.pem().to_owned(),
        };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| AnchorError::File { path, source }
        };
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(anchors),
            entries => entries.map_err(failed(dir))?,
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed(dir))?.path();
            if path.extension().is_some_and(|e| e == "crt") {
                paths.push(path);
            }
        }
        if paths.len() > MAX_OTHERS {
            return Err(AnchorError::TooMany(dir.to_owned()));
        }
        paths.sort();
        for path in paths {
            let pem = std::fs::read_to_string(&path).map_err(failed(&path))?;
            let der = first_certificate(&pem)
                .filter(|der| is_ca(der, now))
                .ok_or(AnchorError::Content(path))?;
            if !anchors.ders.contains(&der) {
                anchors.ders.push(der);
                anchors.bundle.push_str(&pem);
            }
        }
        Ok(anchors)
    }

    /// Each CA, DER.
    #[must_use]
    pub fn ders(&self) -> &[Vec<u8>] {
        &self.ders
    }

    /// All of them, PEM, the gateway's own first: what agents are told to trust.
    #[must_use]
    pub fn bundle(&self) -> &str {
        &self.bundle
    }
}

fn is_ca(der: &[u8], now: UnixSeconds) -> bool {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(der) else {
        return false;
    };
    let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    certificate.is_ca() && now.0 < until
}
