//! Ephemeral virtual machines (specification 002): QEMU, driven directly. No libvirt, no shell, no daemon of their own.
//!
//! A machine is one folder below `machines/` of the task domain, and one process:
//!
//! ```text
//! <vm_id>/size.json    what it may take: the sum of these is what new machines are admitted beside
//! <vm_id>/disk.qcow2   its writes, over a base image that stays as it is; 0600
//! <vm_id>/seed.iso     what cloud-init reads; 0600
//! <vm_id>/run/         sockets of QEMU; 0700
//! ```
//!
//! This is what they are made of. Who makes them and takes them away is `task`: each step is written down there first.

pub mod accel;
pub mod admission;
mod arguments;
pub mod cgroup;
mod folder;
pub mod image;
mod lease;
mod qcow2;
pub mod qmp;
mod seed;
mod tools;

pub use arguments::{CONSOLE, Guest, arguments};
pub use folder::{Folder, Size, held, user_ids};
pub use image::{Image, ImageError};
pub use lease::{Lease, Moment};
pub use qcow2::Qcow2Error;
pub use seed::{documents, writer};
pub use tools::{Tools, User};
