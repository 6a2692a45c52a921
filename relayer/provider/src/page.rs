//! Lists that are read a bounded page at a time. A cursor names the last row of the page before, by what the list is in
//! order of: rows that come or go meanwhile neither hide nor repeat another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows of a page at most.
pub const MAX_PAGE: u32 = 1000;

/// Which part of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window<'a> {
    /// The `next` of the page before; none: from the beginning.
    pub after: Option<&'a str>,
    /// At most so many rows; none, or more than [`MAX_PAGE`]: that.
    pub limit: Option<u32>,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Page<T> {
    /// Rows in the list's order.
    pub items: Vec<T>,
    /// Give this as `after` for what follows; absent: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A cursor that this list has not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no `next` of this list")]
pub struct BadCursor;

impl<'a> Window<'a> {
    /// Rows wanted, 1 to [`MAX_PAGE`].
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE)
    }

    /// Where a list goes on whose cursors have `N` parts, of which the last may hold anything. Without a cursor as many
    /// empty texts.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub fn texts<const N: usize>(&self) -> Result<[&'a str; N], BadCursor> {
        let Some(cursor) = self.after else {
            return Ok([""; N]);
        };
        let parts: Vec<&str> = cursor.splitn(N, '/').collect();
        let parts: [&str; N] = parts.try_into().map_err(|_| BadCursor)?;
        if cursor.len() > 1024 || parts.iter().any(|p| p.is_empty()) {
            return Err(BadCursor);
        }
        Ok(parts)
    }

    /// The same of a list of the newest first: a time, and what tells rows of one time apart. Without a cursor the end of time.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub fn newest<const N: usize>(&self) -> Result<(u64, [&'a str; N]), BadCursor> {
        let Some(cursor) = self.after else {
            return Ok((u64::MAX, [""; N]));
        };
        let (time, rest) = cursor.split_once('/').ok_or(BadCursor)?;
        let time = time.parse().map_err(|_| BadCursor)?;
        let rest = Window {
            after: Some(rest),
            limit: self.limit,
        };
        Ok((time, rest.texts()?))
    }

    /// How many rows to read: one more than wanted shows whether more follow.
    #[must_use]
    pub fn read(&self) -> i64 {
        i64::from(self.limit()) + 1
    }

    /// The page out of what was read with [`Self::read`].
    pub fn cut<T>(&self, mut rows: Vec<T>, cursor: impl Fn(&T) -> String) -> Page<T> {
        let limit = usize::try_from(self.limit()).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(cursor);
        Page { items: rows, next }
    }
}

impl<T> Page<T> {
    /// The same with each row made into another.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(change).collect(),
            next: self.next,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_that_no_list_has_given_is_refused() {
        let at = |after| Window {
            after: Some(after),
            limit: None,
        };
        assert_eq!(at("a/b").texts::<2>(), Ok(["a", "b"]));
        assert_eq!(at("a/b/c").texts::<2>(), Ok(["a", "b/c"]));
        assert_eq!(at("7/key/of/it").newest::<1>(), Ok((7, ["key/of/it"])));
        for bad in ["", "a", "/b", "a/"] {
            assert_eq!(at(bad).texts::<2>(), Err(BadCursor), "{bad}");
        }
        for bad in ["", "7", "x/y", "-1/y", "7/"] {
            assert_eq!(at(bad).newest::<1>(), Err(BadCursor), "{bad}");
        }
        assert_eq!(at(&"x/".repeat(1000)).texts::<2>(), Err(BadCursor));
    }

    proptest! {
        #[test]
        fn pages_one_after_the_other_are_the_list(rows in proptest::collection::btree_set(0u32..500, 0..200), limit in 1u32..50) {
            let rows: Vec<u32> = rows.into_iter().collect();
            let (mut all, mut after) = (Vec::new(), None::<String>);
            loop {
                let window = Window { after: after.as_deref(), limit: Some(limit) };
                let [from] = window.texts::<1>().unwrap();
                let from = from.parse().map_or(0, |n: u32| n + 1);
                let read = usize::try_from(window.read()).unwrap();
                let found: Vec<u32> = rows.iter().copied().filter(|n| *n >= from).take(read).collect();
                let page = window.cut(found, u32::to_string);
                prop_assert!(page.items.len() <= usize::try_from(limit).unwrap());
                all.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            prop_assert_eq!(all, rows);
        }
    }
}
