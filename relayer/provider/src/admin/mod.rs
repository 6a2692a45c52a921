//! What operators see and decide, the same by command line and by the admin listener.

mod certificate;
mod drain;
mod error;
mod node;
mod order;

pub use certificate::revoke;
pub use drain::drain;
pub use error::AdminError;
pub use node::{NodeFull, NodeRow, disable, enable, list, resolve, show};
pub use order::{MAX_DEADLINE_SECONDS, Order, send};
