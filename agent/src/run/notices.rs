//! What the gateway has set beyond its limits: told once for each thing that it asks for, and shown as long as it does. Pure.

use std::collections::BTreeMap;

/// By what was set: what was asked for last, and what had to be changed of it.
#[derive(Debug, Default)]
pub(super) struct Notices(BTreeMap<&'static str, (u32, Vec<String>)>);

impl Notices {
    /// `key` was set to `asked`, of which `changes` had to be made. Gives what is to be told now: nothing where the same was
    /// asked for before.
    pub(super) fn note(&mut self, key: &'static str, asked: u32, changes: Vec<String>) -> Vec<String> {
        if self.0.get(key).is_some_and(|(last, _)| *last == asked) {
            return Vec::new();
        }
        let lines: Vec<String> = changes
            .into_iter()
            .map(|change| format!("{key} of the gateway: {change}"))
            .collect();
        self.0.insert(key, (asked, lines.clone()));
        lines
    }

    /// `key` is set no more.
    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// All that are in force.
    pub(super) fn all(&self) -> Vec<String> {
        self.0.values().flat_map(|(_, lines)| lines.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_told_once_for_each_thing_asked_and_shown_until_another_is() {
        let mut n = Notices::default();
        let one = || vec!["1 is too little; 10 is used".to_owned()];
        let told = n.note("retention", 1, one());
        assert_eq!(told, ["retention of the gateway: 1 is too little; 10 is used"]);
        assert!(n.note("retention", 1, one()).is_empty());
        assert!(n.note("interval", 20, Vec::new()).is_empty());
        assert_eq!(n.all(), told);
        assert!(n.note("retention", 20, Vec::new()).is_empty());
        assert!(n.all().is_empty());
        assert_eq!(n.note("retention", 1, one()), told);
    }
}
