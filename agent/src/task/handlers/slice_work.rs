use hpc_schema::task::{SliceSlot, SliceVmProvision};

use crate::slice::SliceFolder;
use crate::task::failure::Failure;

/// What the phases work on.
pub(super) struct Work<'a> {
    pub(super) p: &'a SliceVmProvision,
    /// In the order of their places.
    pub(super) slots: Vec<&'a SliceSlot>,
    pub(super) folder: SliceFolder,
    pub(super) uuid: String,
}

impl Work<'_> {
    /// The one whose network card and boot disk the machine has.
    pub(super) fn first(&self) -> Result<&SliceSlot, Failure> {
        let first = self.slots.first().copied();
        first.ok_or_else(|| Failure::failed("there is no slot"))
    }
}
