use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hpc_schema::id::ClusterId;

/// A page of a cluster on chain.
pub(super) type PageId = (ClusterId, u16);

/// Which signing key has reports of which pages under way: a page's reports are never in flight twice, for the second
/// batch would pay for the page again and could arrive before the first.
#[derive(Debug, Default)]
pub struct Claims(Mutex<BTreeMap<PageId, String>>);

impl Claims {
    /// The pages that other keys than `signer` hold.
    pub(super) fn others(&self, signer: &str) -> BTreeSet<PageId> {
        let held = self.lock();
        held.iter()
            .filter(|(_, by)| *by != signer)
            .map(|(page, _)| page.clone())
            .collect()
    }

    /// Takes these pages for `signer`, and lets go of all others that it held; false, and no change, if another key holds
    /// one of them.
    pub(super) fn claim(&self, signer: &str, pages: BTreeSet<PageId>) -> bool {
        let mut held = self.lock();
        if pages.iter().any(|p| held.get(p).is_some_and(|by| by != signer)) {
            return false;
        }
        held.retain(|_, by| by != signer);
        held.extend(pages.into_iter().map(|p| (p, signer.to_owned())));
        true
    }

    /// `signer` has nothing under way.
    pub(super) fn release(&self, signer: &str) {
        self.lock().retain(|_, by| by != signer);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PageId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_flight_with_one_key_at_a_time() {
        let page = |n: u16| -> PageId { ("hpc-cluster-1".parse().unwrap(), n) };
        let pages = |n: &[u16]| n.iter().map(|n| page(*n)).collect::<BTreeSet<_>>();
        let claims = Claims::default();
        assert!(claims.claim("a", pages(&[1, 2])));
        assert!(
            !claims.claim("b", pages(&[2, 3])),
            "half of it is as good as nothing"
        );
        assert!(claims.claim("b", pages(&[3])));
        assert_eq!(claims.others("a"), pages(&[3]));
        assert_eq!(claims.others("b"), pages(&[1, 2]));
        assert!(claims.claim("a", pages(&[2, 4])), "its own page again");
        assert!(claims.claim("b", pages(&[1])), "which a has let go");
        claims.release("a");
        assert_eq!(claims.others("b"), pages(&[]));
    }
}
