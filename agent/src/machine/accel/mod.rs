//! By what machines run here, **probed by use**: a guest runs a stock kernel and must say on its serial console that it
//! came through. That `/dev/kvm` exists, or that QEMU lists an accelerator, proves nothing: on hosts that are guests
//! themselves both say yes and every stock kernel hangs.

mod cache;
mod guest;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cache::{Evidence, Known, key};
use hpc_schema::code::Code;
pub use hpc_schema::task::Accel;

use super::tools::User;
use crate::task::{Failure, Stop};

/// The task for which it was tried was taken back, its time is over, or the guest could not be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stopped(pub Failure);

/// Why a machine cannot run as it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccelError {
    /// It was tried.
    #[error("selected_accel not supported by host: {accel}: {detail}; ask for auto, or for what works here")]
    Unsupported {
        /// What was asked for.
        accel: &'static str,
        /// What was seen.
        detail: String,
    },
    /// There is nothing to try it with.
    #[error(
        "no stock kernel to probe accelerators with: {looked}; install one (Debian: linux-image-cloud-amd64) or name one in machines.probe_kernel of the policy"
    )]
    NoKernel {
        /// Where was looked.
        looked: String,
    },
    /// It was not tried to its end.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<AccelError> for Failure {
    fn from(e: AccelError) -> Self {
        match e {
            AccelError::Stopped(Stopped(failure)) => failure,
            e => Self::new(Code::NotSupported, e),
        }
    }
}

/// Tries accelerators and remembers what came of it.
#[derive(Debug)]
pub struct Prober {
    qemu: PathBuf,
    kernel: PathBuf,
    known: Known,
    user: User,
    dev: PathBuf,
}

/// Where the host keeps its kernels.
pub const BOOT: &str = "/boot";

impl Prober {
    /// Finds the kernel: `kernel` if one is named, else the running one's file or the newest in `boot`. `memory` is the
    /// file of what is known.
    ///
    /// # Errors
    /// [`AccelError::NoKernel`].
    pub fn new(
        proc: &Path,
        qemu: &Path,
        kernel: Option<&Path>,
        boot: &Path,
        memory: &Path,
    ) -> Result<Self, AccelError> {
        let found = match kernel {
            Some(path) => path.is_file().then(|| path.to_owned()),
            None => guest::kernel(boot),
        };
        let kernel = found.ok_or_else(|| AccelError::NoKernel {
            looked: match kernel {
                Some(path) => format!("{} is no file", path.display()),
                None => format!("{} has no vmlinuz-*", boot.display()),
            },
        })?;
        Ok(Self {
            qemu: qemu.to_owned(),
            known: Known::load(memory, cache::key(proc, qemu, &kernel)),
            kernel,
            user: User(None),
            dev: PathBuf::new(),
        })
    }

    /// Guests run as this user: a kernel is tried with no more rights than a machine has. `dev` has the accelerators.
    #[must_use]
    pub fn running_as(mut self, user: User, dev: &Path) -> Self {
        self.user = user;
        self.dev = dev.to_owned();
        self
    }

    /// What was seen of this accelerator on this host, kernel and QEMU; tried now if nothing is known, or if what is
    /// known is old.
    ///
    /// # Errors
    /// [`Stopped`]: nothing was seen, and nothing is kept.
    pub fn evidence(&mut self, accel: Accel, now: u64, stop: &Stop) -> Result<Evidence, Stopped> {
        if let Some(known) = self.known.of(accel, now) {
            return Ok(known);
        }
        let owner = self.user.for_accel(&self.dev, accel).0;
        let seen = match guest::Kernel::readable(&self.kernel, self.known.folder(), owner) {
            Ok(kernel) => guest::run(&self.qemu, &kernel, accel, limit(accel), owner, (now, stop))?,
            Err(e) => Evidence {
                works: false,
                detail: e.to_string(),
                took_ms: 0,
                at: now,
            },
        };
        self.known.put(accel, &seen);
        Ok(seen)
    }

    /// The accelerator to run by: the one that is wanted, or the best that works.
    ///
    /// # Errors
    /// [`AccelError::Unsupported`], with what was seen; [`AccelError::Stopped`].
    pub fn select(&mut self, wanted: Accel, now: u64, stop: &Stop) -> Result<Accel, AccelError> {
        let candidates = match wanted {
            Accel::Auto => supported(),
            ref one => std::slice::from_ref(one),
        };
        let mut said = Vec::new();
        for accel in candidates {
            let seen = self.evidence(*accel, now, stop)?;
            if seen.works {
                return Ok(*accel);
            }
            said.push(format!("{}: {}", accel.as_str(), seen.detail));
        }
        let detail = match wanted {
            Accel::Auto => said.join("; "),
            _ => said
                .pop()
                .unwrap_or_default()
                .split_once(": ")
                .map_or_else(String::new, |(_, d)| d.to_owned()),
        };
        Err(AccelError::Unsupported {
            accel: wanted.as_str(),
            detail,
        })
    }
}

/// What this operating system could have, the best first.
fn supported() -> &'static [Accel] {
    if cfg!(any(target_os = "dragonfly", target_os = "netbsd")) {
        &[Accel::Nvmm, Accel::Tcg]
    } else {
        &[Accel::Kvm, Accel::Tcg]
    }
}

/// Longest time that a probe guest may take: hardware needs one second, emulation on a busy host half a minute.
fn limit(accel: Accel) -> Duration {
    match accel {
        Accel::Tcg => Duration::from_secs(90),
        _ => Duration::from_secs(15),
    }
}
