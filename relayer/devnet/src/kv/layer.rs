//! A layer of writes over another view.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Entries, Entry, Kv};

/// What a layer changed: the new value, or `None` where the key was removed.
pub(crate) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Reads through to `base`, keeps writes to itself.
pub(crate) struct Layer<'b> {
    base: &'b dyn Kv,
    writes: Writes,
}

impl<'b> Layer<'b> {
    pub(crate) fn over(base: &'b dyn Kv) -> Self {
        Self {
            base,
            writes: Writes::new(),
        }
    }

    /// A layer that starts with changes made earlier over the same base.
    pub(crate) fn with(base: &'b dyn Kv, writes: Writes) -> Self {
        Self { base, writes }
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) {
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.writes.insert(key.to_vec(), None);
    }

    /// The changes, for [`Layer::apply`] on the layer below or for the disk.
    pub(crate) fn into_writes(self) -> Writes {
        self.writes
    }

    /// Takes over the changes of a layer that stood on this one.
    pub(crate) fn apply(&mut self, writes: Writes) {
        self.writes.extend(writes);
    }
}

impl Kv for Layer<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.writes.get(key) {
            Some(value) => value.clone(),
            None => self.base.get(key),
        }
    }

    fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>, reverse: bool) -> Entries<'a> {
        if end.is_some_and(|end| end <= start) {
            return Box::new(std::iter::empty());
        }
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let own = self.writes.range::<[u8], _>((Bound::Included(start), upper));
        let own: Own<'_> = if reverse {
            Box::new(own.rev())
        } else {
            Box::new(own)
        };
        let below = self.base.range(start, end, reverse);
        Box::new(Merge {
            own: own.peekable(),
            below: below.peekable(),
            reverse,
        })
    }
}

/// A layer's own writes in a range.
type Own<'a> = Box<dyn Iterator<Item = (&'a Vec<u8>, &'a Option<Vec<u8>>)> + 'a>;

/// Merges a layer's writes with what lies below; a write hides the entry of the same key.
struct Merge<'a> {
    own: std::iter::Peekable<Own<'a>>,
    below: std::iter::Peekable<Entries<'a>>,
    reverse: bool,
}

impl Iterator for Merge<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let own_first = match (self.own.peek(), self.below.peek()) {
                (None, _) => return self.below.next(),
                (Some(_), None) => true,
                (Some((own, _)), Some((below, _))) => {
                    if *own == below {
                        self.below.next();
                        true
                    } else {
                        (*own < below) != self.reverse
                    }
                }
            };
            if !own_first {
                return self.below.next();
            }
            if let Some((key, Some(value))) = self.own.next() {
                return Some((key.clone(), value.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Nothing;
    use super::*;

    type Op = (Vec<u8>, Option<Vec<u8>>);

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let key = proptest::collection::vec(0u8..4, 0..3);
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..3));
        proptest::collection::vec((key, value), 0..24)
    }

    fn write(layer: &mut Layer<'_>, model: &mut BTreeMap<Vec<u8>, Vec<u8>>, ops: Vec<Op>) {
        for (key, value) in ops {
            match value {
                Some(value) => {
                    layer.set(&key, &value);
                    model.insert(key, value);
                }
                None => {
                    layer.remove(&key);
                    model.remove(&key);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn stacked_layers_read_like_one_map(
            lower in ops(), upper in ops(),
            start in proptest::collection::vec(0u8..4, 0..3),
            end in proptest::option::of(proptest::collection::vec(0u8..4, 0..3)),
            reverse in any::<bool>(),
        ) {
            let mut model = BTreeMap::new();
            let mut first = Layer::over(&Nothing);
            write(&mut first, &mut model, lower);
            let mut second = Layer::over(&first);
            write(&mut second, &mut model, upper);
            let mut expected: Vec<Entry> = model
                .iter()
                .filter(|(k, _)| **k >= start && end.as_ref().is_none_or(|e| *k < e))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if reverse {
                expected.reverse();
            }
            let got: Vec<Entry> = second.range(&start, end.as_deref(), reverse).collect();
            prop_assert_eq!(got, expected);
            for key in model.keys() {
                prop_assert_eq!(second.get(key), model.get(key).cloned());
            }
            let writes = second.into_writes();
            first.apply(writes);
            prop_assert_eq!(first.range(&[], None, false).collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
