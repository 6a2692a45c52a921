//! Errors that the memory controllers have seen since boot: `/sys/devices/system/edac/mc`.

use super::number;
use crate::probe::{Roots, names_in};

/// One memory controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// `mc0`.
    pub name: String,
    /// Corrected errors.
    pub corrected: u64,
    /// Uncorrected errors.
    pub uncorrected: u64,
}

/// All controllers; empty without EDAC.
#[must_use]
pub fn read(roots: &Roots) -> Vec<Controller> {
    let dir = roots.sys.join("devices/system/edac/mc");
    names_in(&dir)
        .into_iter()
        .filter(|n| {
            n.strip_prefix("mc")
                .is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
        })
        .filter_map(|name| {
            let count = |file| number(&dir.join(&name).join(file)).and_then(|n| u64::try_from(n).ok());
            Some(Controller {
                corrected: count("ce_count")?,
                uncorrected: count("ue_count")?,
                name,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::recorded;

    #[test]
    fn each_controller_has_its_counts() {
        let (_dir, roots) = recorded("gpu-node");
        let all = read(&roots);
        assert_eq!(all.len(), 4);
        assert_eq!(
            all[3],
            Controller {
                name: "mc3".into(),
                corrected: 17,
                uncorrected: 1
            }
        );
    }
}
