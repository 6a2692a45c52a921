use std::path::{Path, PathBuf};

use hpc_schema::time::UnixSeconds;
use pem::{EncodeConfig, LineEnding, Pem, encode_config};

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
    /// It is no certificate of a CA.
    #[error("{}: must be one PEM certificate of a CA", .0.display())]
    Content(PathBuf),
    /// There are too many.
    #[error("{}: holds more than {MAX_OTHERS} certificates; remove those of past CAs", .0.display())]
    TooMany(PathBuf),
}

impl Anchors {
    /// The gateway's CA and the certificates `*.crt` of a directory, which need not exist. One whose time is over is left out:
    /// it vouches for nobody, and keeps nobody else out.
    ///
    /// # Errors
    /// [`AnchorError`]: one that is no CA's refuses all.
    pub fn load(ca: &Ca, dir: &Path, now: UnixSeconds) -> Result<Self, AnchorError> {
        let mut anchors = Self {
            ders: vec![ca.der().to_vec()],
            bundle: pem(ca.der()),
        };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| AnchorError::File { path, source }
        };
        let paths = trusted_files(dir).map_err(failed(dir))?;
        if paths.len() > MAX_OTHERS {
            return Err(AnchorError::TooMany(dir.to_owned()));
        }
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
            let read = first_certificate(&text).and_then(|der| Some((ca_until(&der)?, der)));
            let Some((until, der)) = read else {
                return Err(AnchorError::Content(path));
            };
            if until <= now {
                tracing::warn!(path = %path.display(), %until, "a trusted CA has ended and is left out; remove its file");
            } else if !anchors.ders.contains(&der) {
                anchors.bundle.push_str(&pem(&der));
                anchors.ders.push(der);
            }
        }
        Ok(anchors)
    }

    /// Each CA, DER.
    #[must_use]
    pub fn ders(&self) -> &[Vec<u8>] {
        &self.ders
    }

    /// All of [`Self::ders`], PEM, the gateway's own first: what agents are told to trust. Nothing else of their files.
    #[must_use]
    pub fn bundle(&self) -> &str {
        &self.bundle
    }
}

/// The certificates `*.crt` of a directory, which need not exist, in their order.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn trusted_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "crt") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn pem(der: &[u8]) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    encode_config(&Pem::new("CERTIFICATE", der), lines)
}

/// Until when a CA's certificate counts; none if it is no CA's.
fn ca_until(der: &[u8]) -> Option<UnixSeconds> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    certificate.is_ca().then_some(UnixSeconds(until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_told_of_the_cas_that_count_and_of_nothing_else_in_their_files() {
        let now = UnixSeconds(1_800_000_000);
        let dir = tempfile::tempdir().unwrap();
        let (ca, key) = Ca::create(now, [1; 16]).unwrap();
        let ours = Ca::from_pem(ca.pem().trim_end(), &key).unwrap();
        let (next, _) = Ca::create(now, [2; 16]).unwrap();
        let (other, _) = Ca::create(now, [3; 16]).unwrap();
        let (last, _) = Ca::create(now, [4; 16]).unwrap();
        let two = format!("of two\n{}{}", next.pem(), other.pem());
        std::fs::write(dir.path().join("a.crt"), two.trim_end()).unwrap();
        std::fs::write(dir.path().join("b.crt"), last.pem()).unwrap();
        let anchors = Anchors::load(&ours, dir.path(), now).unwrap();
        assert_eq!(anchors.ders().len(), 3);
        assert_eq!(
            anchors.bundle(),
            format!("{}{}{}", ca.pem(), next.pem(), last.pem())
        );
    }

    #[test]
    fn a_ca_whose_time_is_over_is_left_out_and_what_is_no_ca_refuses_all() {
        let now = UnixSeconds(1_800_000_000);
        let dir = tempfile::tempdir().unwrap();
        let (ours, _) = Ca::create(now, [1; 16]).unwrap();
        let (past, _) = Ca::create(now.minus(11 * 365 * 86_400), [2; 16]).unwrap();
        let (next, _) = Ca::create(now, [3; 16]).unwrap();
        let absent = Anchors::load(&ours, &dir.path().join("absent"), now).unwrap();
        assert_eq!(absent.ders(), [ours.der().to_vec()]);
        std::fs::write(dir.path().join("next.crt"), next.pem()).unwrap();
        std::fs::write(dir.path().join("previous.crt"), past.pem()).unwrap();
        let anchors = Anchors::load(&ours, dir.path(), now).unwrap();
        assert_eq!(anchors.ders(), [ours.der().to_vec(), next.der().to_vec()]);
        assert_eq!(anchors.bundle(), format!("{}{}", ours.pem(), next.pem()));
        let (leaf, _) = ours
            .issue_server(&["gw.example".to_owned()], now, [4; 16])
            .unwrap();
        std::fs::write(dir.path().join("leaf.crt"), leaf.pem).unwrap();
        let refused = Anchors::load(&ours, dir.path(), now).unwrap_err().to_string();
        assert!(
            refused.contains("leaf.crt: must be one PEM certificate of a CA"),
            "{refused}"
        );
    }
}
