//! Slices for real: libvirt, Open vSwitch and dnsmasq of Debian in namespaces of their own, QEMU without KVM, a guest
//! made of Debian's packages, the provider's daemon, the agent's task process and a chain. Needs root and Debian's
//! libvirt-daemon-system, virtinst, openvswitch-switch, dnsmasq-base, dropbear-bin and what the stage `machines` needs:
//! stage `slices` of `scripts/test`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../machines/guest.rs"]
#[expect(dead_code, reason = "the other suite's own guest is in it too")]
mod guest;
mod host;
mod image;
mod life;
mod node;
mod phases;
mod safety;
