//! A whole Debian with systemd in a virtual machine, for what a container or a folder cannot show: units, watchdogs, mounts,
//! devices. Always by translation (TCG): whether this machine's `/dev/kvm` works is not ours to know.
//!
//! The system is made once of Debian's packages and kept in the cache; each machine gets a copy that is thrown away, and
//! a folder of the test's as its second disk, whose program `run` it starts once it is up. What that prints comes back
//! line by line; when it ends, the machine ends.

mod image;
mod machine;

pub use image::{Image, sources};
pub use machine::{Machine, Options};
