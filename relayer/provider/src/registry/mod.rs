//! The chain as the gateway last saw it: parameters, clusters, nodes; and what the gateway knows of a node
//! beside the chain (address, orders). In memory for admission, on disk for a start without the chain.

mod clusters;
mod contacts;
mod listed;
mod node;
mod others;
mod peers;
#[cfg(test)]
pub(crate) mod scene;
mod store;
mod sync;
mod task_keys;
mod view;

pub use clusters::{ask_clusters, clusters, clusters_of, told_clusters};
pub use contacts::{forget_contacts, keep_probe, save_contacts};
pub use listed::{Listed, Which, listed};
pub use node::{Contact, Node, Order, OrderKind, ProbeEndpoint};
pub use others::{Mark, catch_up, heard_elsewhere, heard_of};
pub use store::{Known, cluster_owner, known, load};
pub use sync::{SyncError, Turns, served, sync, sync_cluster, sync_nodes};
pub use task_keys::TaskKeys;
pub use view::{Around, Place, Registry, Seen, Tip, Whose};
