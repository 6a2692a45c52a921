//! Devices that this machine lacks, for real in one that is emulated: an IOMMU, two NUMA nodes, NVMe namespaces, virtual
//! functions by SR-IOV, a GPU's place on the bus. In it the agent's task domain finds slots, brings functions to `vfio-pci`,
//! writes an image onto NVMe, has libvirt start a machine with the functions handed through, wipes, and proves it.
//! Needs root and what the stage `slices` needs: stage `passthrough` of `scripts/test` (in full runs).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bus;
#[path = "../machines/guest.rs"]
#[expect(dead_code, reason = "the other suites' own guests are in it too")]
mod guest;
#[path = "../slices/host.rs"]
#[expect(dead_code, reason = "what only slices on loop devices need is in it too")]
mod host;
mod life;
mod machine;
#[path = "../slices/node.rs"]
#[expect(dead_code, reason = "what only kills need is in it too")]
mod node;
