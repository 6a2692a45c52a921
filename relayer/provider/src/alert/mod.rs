//! Alerts: from the nodes' transitions, their jobs, and troubles of the daemon's own, to a webhook, an Alertmanager, the log.
//! Each is on record once; what is told to whom is in the store before it is sent.

mod body;
mod book;
mod group;
mod nodes;
mod outbox;
mod own;
mod parts;
mod run;
mod sink;
mod standing;
mod teller;
mod tries;

pub use book::{AlertRow, NAMES, list};
pub(crate) use nodes::on_event;
pub(crate) use own::is_of_each;
pub use parts::Parts;
pub use run::{start, start_of_each};
pub(crate) use sink::check;
pub use sink::{SinkError, signature};
pub use standing::Standing;
