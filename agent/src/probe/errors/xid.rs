//! NVIDIA's Xid codes: what the driver writes to the kernel log when a GPU faults, and what helps.
//!
//! Source: NVIDIA's "XID Errors" document. Codes that are not listed count as errors without advice.

/// What to do about a fault; the more, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The program is at fault, or nothing is.
    None,
    /// Start the program again.
    RestartWork,
    /// Reset the GPU.
    ResetGpu,
    /// Reboot the node.
    Reboot,
    /// The card is due for replacement.
    Replace,
}

/// One line of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid {
    /// The number.
    pub code: u32,
    /// What it means.
    pub meaning: &'static str,
    /// What helps.
    pub action: Action,
}

impl Action {
    /// For people.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::None => "look at the program that ran",
            Self::RestartWork => "restart the work on it",
            Self::ResetGpu => "reset the GPU (nvidia-smi --gpu-reset)",
            Self::Reboot => "reboot the node",
            Self::Replace => "drain the node and have the GPU replaced",
        }
    }

    /// Whether new work should stay away until somebody has acted.
    #[must_use]
    pub fn blocks_work(self) -> bool {
        matches!(self, Self::ResetGpu | Self::Reboot | Self::Replace)
    }
}

const fn xid(code: u32, meaning: &'static str, action: Action) -> Xid {
    Xid {
        code,
        meaning,
        action,
    }
}

const CATALOGUE: [Xid; 24] = [
    xid(13, "graphics engine exception", Action::None),
    xid(31, "GPU memory page fault", Action::None),
    xid(32, "invalid or corrupted push buffer stream", Action::RestartWork),
    xid(38, "driver firmware error", Action::Reboot),
    xid(43, "GPU stopped processing", Action::None),
    xid(45, "preemptive cleanup after earlier errors", Action::None),
    xid(46, "GPU stopped processing (driver timeout)", Action::ResetGpu),
    xid(48, "double bit ECC error", Action::ResetGpu),
    xid(61, "internal micro-controller breakpoint", Action::ResetGpu),
    xid(62, "internal micro-controller halt", Action::ResetGpu),
    xid(63, "ECC page retirement or row remapping recorded", Action::None),
    xid(64, "ECC page retirement or row remapping failed", Action::Replace),
    xid(68, "video processor exception", Action::None),
    xid(69, "graphics engine class error", Action::RestartWork),
    xid(74, "NVLink error", Action::ResetGpu),
    xid(79, "GPU has fallen off the bus", Action::Reboot),
    xid(92, "high single bit ECC error rate", Action::None),
    xid(94, "contained ECC error", Action::RestartWork),
    xid(95, "uncontained ECC error", Action::ResetGpu),
    xid(109, "context switch timeout", Action::ResetGpu),
    xid(119, "GSP firmware does not answer", Action::ResetGpu),
    xid(120, "GSP firmware error", Action::ResetGpu),
    xid(140, "unrecovered ECC error", Action::ResetGpu),
    xid(143, "GPU initialisation failed", Action::Reboot),
];

/// The catalogue's line for `code`.
#[must_use]
pub fn look_up(code: u32) -> Option<Xid> {
    CATALOGUE.iter().find(|x| x.code == code).copied()
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', …` → (`0000:3b:00`, 79).
#[must_use]
pub fn parse(text: &str) -> Option<(&str, u32)> {
    let rest = text.split_once("NVRM: Xid (PCI:")?.1;
    let (device, rest) = rest.split_once("):")?;
    let digits = rest.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    Some((device, digits.get(..end)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_from_the_drivers_lines() {
        let line =
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
        assert_eq!(parse(line), Some(("0000:3b:00", 79)));
        assert_eq!(
            parse("NVRM: Xid (PCI:0000:07:00): 13, Graphics SM Warp Exception"),
            Some(("0000:07:00", 13))
        );
        assert_eq!(parse("NVRM: GPU at PCI:0000:3b:00: GPU-1"), None);
        assert_eq!(parse("NVRM: Xid (PCI:0000:3b:00): x"), None);
    }

    #[test]
    fn the_catalogue_is_sorted_and_tells_what_blocks_work() {
        assert!(CATALOGUE.windows(2).all(|w| w[0].code < w[1].code));
        assert!(look_up(79).unwrap().action.blocks_work());
        assert!(!look_up(31).unwrap().action.blocks_work());
        assert_eq!(look_up(9999), None);
    }
}
