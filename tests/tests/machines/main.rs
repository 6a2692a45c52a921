//! Ephemeral machines for real: QEMU without KVM, a guest made of Debian's packages, tasks that are signed as a
//! gateway's are. Needs root, Debian's qemu-system-x86, qemu-utils, xorriso, grub-pc-bin, busybox-static: stage
//! `machines` of `scripts/test`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod accel;
mod death;
mod guest;
mod life;
mod node;
mod packages;
mod refusal;
mod users;
