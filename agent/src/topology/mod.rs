//! What this host could offer as slices (specification 003, `slice.topology_discover`). Reads the kernel's trees, asks
//! two programs for what stands in no file, and changes nothing. Roots are arguments: recorded trees of other hosts are
//! test input.

mod block;
mod host;
mod network;
mod pci;
mod slots;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hpc_schema::task::{CandidateSummary, Topology};

use crate::probe::Roots;

/// Programs that slices use.
pub const COMMANDS: [&str; 6] = [
    "cloud-localds",
    "qemu-img",
    "virt-install",
    "virsh",
    "ovs-vsctl",
    "findmnt",
];

/// Asks a program: its name and arguments; its output if it ended with 0.
pub type Ask<'a> = &'a dyn Fn(&str, &[&'static str]) -> Option<String>;

/// Where a host is read.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    /// The kernel's trees.
    pub roots: &'a Roots,
    /// `/run`, where distributions say that the host wants a reboot.
    pub run: &'a Path,
    /// Where a program is, if it is.
    pub find: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// What a program says.
    pub ask: Ask<'a>,
}

impl std::fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree")
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}

/// Reads it all.
#[must_use]
pub fn discover(tree: &Tree<'_>) -> Topology {
    let prerequisites = host::prerequisites(tree);
    let bus = pci::read(tree.roots);
    let disks = block::namespaces(tree.roots);
    let slots = slots::pair(&bus, &disks, &host::identity(tree.roots));
    let mut blockers = host::blockers(&prerequisites);
    blockers.extend(slots.blockers);
    Topology {
        prerequisites,
        gpu_devices: bus.gpus,
        fabric_devices: bus.fabric,
        nvme_devices: disks,
        candidate_summary: CandidateSummary {
            candidates: u32::try_from(slots.candidates.len()).unwrap_or(u32::MAX),
            blockers,
        },
        candidate_slots: slots.candidates,
        approval_required: true,
    }
}

/// Each of `names` with where it is.
fn located(tree: &Tree<'_>, names: &[&str]) -> BTreeMap<String, Option<String>> {
    names
        .iter()
        .map(|n| ((*n).to_owned(), (tree.find)(n).map(|p| p.display().to_string())))
        .collect()
}

#[cfg(test)]
mod tests;
