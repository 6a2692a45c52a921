use std::sync::{Arc, PoisonError};

use hpc_schema::code::Code;

use super::Ledger;
use crate::task::failure::Failure;
use crate::task::owner::Owner;

/// That a task works for an owner; given back when dropped.
#[derive(Debug)]
pub struct OwnerLock {
    ledger: Arc<Ledger>,
    owner: Owner,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        let mut busy = self.ledger.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.owner);
    }
}

impl Ledger {
    /// Lets one work for an owner; none while another does.
    #[must_use]
    pub fn lock_owner(self: &Arc<Self>, owner: &Owner) -> Option<OwnerLock> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(owner.clone()).then(|| OwnerLock {
            ledger: Arc::clone(self),
            owner: owner.clone(),
        })
    }
}

/// That a task works for it.
pub(super) fn busy(owner: &Owner) -> Failure {
    Failure::new(Code::ResourceBusy, format!("a task works for {owner}"))
}
