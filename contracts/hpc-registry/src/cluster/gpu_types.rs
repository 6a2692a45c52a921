//! The GPU types of a cluster: a node's page holds the index of its type, 0 = none or unknown.
//!
//! Value: for each type from index 1 on, length u8 and text.

use cosmwasm_std::Storage;

use crate::keys;

/// Types that a cluster can tell apart; what comes after them counts as unknown.
const MAX_TYPES: usize = 255;

/// The names from index 1 on.
pub(crate) fn load(storage: &dyn Storage, cluster: u32) -> Vec<String> {
    let stored = storage.get(&keys::gpu_types(cluster)).unwrap_or_default();
    let mut rest = &stored[..];
    let mut names = Vec::new();
    while let Some((len, tail)) = rest.split_first() {
        let Some((name, tail)) = tail.split_at_checked(usize::from(*len)) else {
            break;
        };
        names.push(String::from_utf8_lossy(name).into_owned());
        rest = tail;
    }
    names
}

/// What a cluster knows of a type's name.
pub(crate) enum Found {
    At(u8),
    /// No node has ever had it.
    Absent,
    /// Not among those told apart, and there is no index left: nodes of index 0 may have it.
    Full,
}

pub(crate) fn find(storage: &dyn Storage, cluster: u32, name: &str) -> Found {
    let names = load(storage, cluster);
    let at = names.iter().position(|n| n == name);
    match at.and_then(|i| u8::try_from(i.saturating_add(1)).ok()) {
        Some(index) => Found::At(index),
        None if names.len() < MAX_TYPES => Found::Absent,
        None => Found::Full,
    }
}

/// The index of `name`, which is added if it is new.
pub(crate) fn index_of(storage: &mut dyn Storage, cluster: u32, name: &str) -> u8 {
    let Ok(len) = u8::try_from(name.len()) else {
        return 0;
    };
    if len == 0 {
        return 0;
    }
    let names = load(storage, cluster);
    let number = |i: usize| u8::try_from(i.saturating_add(1)).unwrap_or(0);
    if let Some(i) = names.iter().position(|n| n == name) {
        return number(i);
    }
    if names.len() >= MAX_TYPES {
        return 0;
    }
    let mut stored = storage.get(&keys::gpu_types(cluster)).unwrap_or_default();
    stored.push(len);
    stored.extend_from_slice(name.as_bytes());
    storage.set(&keys::gpu_types(cluster), &stored);
    number(names.len())
}

#[cfg(test)]
mod tests {
    use cosmwasm_std::testing::MockStorage;

    use super::*;

    #[test]
    fn types_keep_their_index_and_clusters_their_own() {
        let mut storage = MockStorage::new();
        assert_eq!(index_of(&mut storage, 0, ""), 0);
        assert_eq!(index_of(&mut storage, 0, "A100"), 1);
        assert_eq!(index_of(&mut storage, 0, "H100"), 2);
        assert_eq!(index_of(&mut storage, 0, "A100"), 1);
        assert_eq!(index_of(&mut storage, 1, "H100"), 1);
        assert_eq!(load(&storage, 0), ["A100", "H100"]);
        for n in 0..300 {
            let _index = index_of(&mut storage, 2, &format!("type {n}"));
        }
        assert_eq!(index_of(&mut storage, 2, "type 254"), 255);
        assert_eq!(index_of(&mut storage, 2, "type 255"), 0);
    }
}
