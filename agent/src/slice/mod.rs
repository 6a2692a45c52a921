//! Slices (specification 003): virtual machines of libvirt with devices of their own.
//!
//! ```text
//! slices/<vm_name>/terminal_key   the key by which this host, and nobody else, logs in to the machine
//! slices/<vm_name>/known_hosts    the machine's own key, which it was given
//! slices/<vm_name>/seed.iso       what cloud-init reads; 0600
//! leases/<slot_id>.json           who has a slot
//! ```
//!
//! This is what they are made of. Who makes them and takes them away is `task`: each step is written down there first.

pub mod disk;
mod folder;
pub mod keys;
pub mod libvirt;
pub mod mark;
pub mod pci;
pub mod probe;
mod seed;
pub mod ssh;
pub mod statistics;
pub mod telemetry;
mod tools;

pub use folder::{SliceFolder, lease};
pub use seed::{READY_FILE, Seed, meta_data, user_data};
pub use tools::{Missing, SliceTools};
