//! What a task meant to do and did: one file a task, a line a record, each on the disk before the next step is taken.
//! From it alone, whatever killed the agent, the task is undone or finished.

mod file;
mod fold;
mod record;

pub(super) use file::lock;
pub use file::{Journal, JournalError, Shared, load_all};
pub use fold::{Ended, Step, StepState, Story};
pub use record::Record;
pub(super) use record::{line, parse};
