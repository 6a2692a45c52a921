//! Ordered key/value views: the committed state on disk and write layers stacked over it.
//!
//! A block is executed in a layer over the committed state, each transaction in a layer over the block's,
//! each message in a layer over its transaction's. A layer that fails is dropped; nothing is undone by hand.

mod disk;
mod layer;

pub(crate) use disk::Disk;
pub(crate) use layer::{Layer, Writes};

/// One key and its value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// Entries in key order (or its reverse).
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Entry> + 'a>;

/// Read access to an ordered map of bytes.
pub(crate) trait Kv {
    /// The value at `key`, if there is one.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// Entries with `start <= key < end` (no `end`: to the last key), backwards if `reverse`.
    fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>, reverse: bool) -> Entries<'a>;
}

/// The smallest key greater than every key that starts with `prefix`, or `None` if there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// The state before genesis.
pub(crate) struct Nothing;

impl Kv for Nothing {
    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn range<'a>(&'a self, _start: &[u8], _end: Option<&[u8]>, _reverse: bool) -> Entries<'a> {
        Box::new(std::iter::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn the_end_of_a_prefix_carries_over_full_bytes() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), None);
        assert_eq!(prefix_end(&[]), None);
    }
}
