//! Troubles that were said, so that each is said once while it lasts. Pure.

use std::collections::BTreeSet;

/// Kinds of trouble that last.
#[derive(Debug, Default, Clone)]
pub(super) struct Said(BTreeSet<&'static str>);

impl Said {
    /// Whether this kind is new, and is to be said now.
    pub(super) fn begins(&mut self, kind: &'static str) -> bool {
        self.0.insert(kind)
    }

    /// Whether this kind lasted until now.
    pub(super) fn ends(&mut self, kind: &'static str) -> bool {
        self.0.remove(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_said_once_however_many_others_come_between() {
        let mut s = Said::default();
        assert!(s.begins("clock") && s.begins("refused"));
        assert!(!s.begins("clock") && !s.begins("refused"));
        assert!(s.ends("clock") && !s.ends("clock"));
        assert!(s.begins("clock") && !s.begins("refused"));
    }
}
