//! A file from elsewhere, by `curl`: HTTPS alone, no redirection, bounded, taken up again where it was cut off.

use std::path::Path;
use std::time::Duration;

use hpc_schema::task::{HostPath, HttpsUrl};
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::process::end_marked;
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::task::exec::{ExecError, Program};
use crate::task::images;

/// How often it is taken up again, and the pause between.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// One attempt.
const LIMIT: Duration = Duration::from_secs(3600);
/// Exit codes of curl: what the server says no to, what is too large, what cannot be continued.
const REFUSED: i32 = 22;
const TOO_LARGE: i32 = 63;
const RANGE: i32 = 33;

/// A file that is fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Where it is to be.
    pub path: HostPath,
    /// Where it is.
    pub url: HttpsUrl,
    /// Largest size in bytes.
    pub most: u64,
    /// PEM of the CA; absent: those that the system trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<HostPath>,
    /// `curl`.
    pub curl: HostPath,
    /// `prlimit`: it bounds what is written, whatever the server says of the size.
    pub prlimit: HostPath,
}

impl Fetched {
    fn program(&self, temporary: &str, scene: Scene<'_>) -> Result<Program, ExecError> {
        let mut program = Program::new(Path::new(self.prlimit.as_str()))
            .vector([format!("--fsize={}", self.most), "--".to_owned()])
            .value(self.curl.as_str())?
            .flag("--disable")
            .flag("--silent")
            .flag("--show-error")
            .flag("--fail")
            .flag("--proto")
            .flag("=https")
            .flag("--tlsv1.2")
            .flag("--connect-timeout")
            .flag("30")
            .flag("--speed-limit")
            .flag("1024")
            .flag("--speed-time")
            .flag("60")
            .flag("--continue-at")
            .flag("-")
            .flag("--max-filesize")
            .value(&self.most.to_string())?
            .flag("--output")
            .value(temporary)?;
        if let Some(ca) = &self.ca {
            program = program.flag("--cacert").value(ca.as_str())?;
        }
        Ok(program.value(self.url.as_str())?.marked(scene).within(LIMIT))
    }
}

impl Act for Fetched {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let place = Place::open(&self.path, scene)?;
        let temporary = place.temporary_path();
        let text = temporary
            .to_str()
            .ok_or_else(|| EffectError::Unknown(format!("{} is not text", temporary.display())))?;
        for attempt in 1.. {
            let out = self.program(text, scene)?.ask(scene.stop)?;
            if out.code == 0 {
                break;
            }
            if attempt >= ATTEMPTS || matches!(out.code, REFUSED | TOO_LARGE) {
                let said = String::from_utf8_lossy(&out.stderr)
                    .trim()
                    .chars()
                    .take(400)
                    .collect();
                return Err(EffectError::Program(ExecError::Failed {
                    path: self.curl.as_str().into(),
                    status: format!("exit code {}", out.code),
                    message: said,
                }));
            }
            if out.code == RANGE {
                // From the beginning: the server cannot go on in the midst.
                std::fs::remove_file(&temporary).ok();
            }
            scene.stop.check().map_err(EffectError::Stopped)?;
            std::thread::sleep(PAUSE);
        }
        place.seal(0o644)?;
        note(place.trace()?)?;
        place.publish()
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        end_marked(scene)?;
        // Another task may be reading what this one has fetched.
        let wait = || scene.stop.check().map_err(EffectError::Stopped);
        let _alone = images::alone(Path::new(self.path.as_str()), &wait)?;
        place::remove(&self.path, scene, trace)
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        place::observe(&self.path, scene, trace)
    }

    fn shown(&self) -> String {
        format!("file {} from {}", self.path, self.url)
    }
}
