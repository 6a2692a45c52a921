//! Accelerators of virtual machines on this host.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::probe::tool::find;

/// By what QEMU runs a virtual machine here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The kernel's, by `/dev/kvm`.
    Kvm,
    /// None: QEMU translates every instruction.
    Tcg,
}

impl Accel {
    /// As QEMU names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Accel {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(()),
        }
    }
}

/// What works here, the best first. A `/dev/kvm` that nothing has been run with proves nothing, so only what has been
/// proven by use counts.
#[must_use]
pub fn supported() -> Vec<Accel> {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    find(&qemu, None).map(|_| Accel::Tcg).into_iter().collect()
}

/// The accelerator in use: the one that is `wanted`, if it works here; else the best that does.
#[must_use]
pub fn selected(wanted: Option<Accel>, supported: &[Accel]) -> Option<Accel> {
    match wanted {
        Some(wanted) => supported.contains(&wanted).then_some(wanted),
        None => supported.first().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_counts_only_where_it_works() {
        let both = [Accel::Kvm, Accel::Tcg];
        assert_eq!(selected(None, &both), Some(Accel::Kvm));
        assert_eq!(selected(Some(Accel::Tcg), &both), Some(Accel::Tcg));
        assert_eq!(selected(Some(Accel::Kvm), &[Accel::Tcg]), None);
        assert_eq!(selected(None, &[]), None);
        assert_eq!("kvm".parse(), Ok(Accel::Kvm));
        assert!("nvmm".parse::<Accel>().is_err());
    }
}
