//! The nearest known word to a misspelt one.

/// The candidate that needs the fewest edits, if it is near enough to be meant.
#[must_use]
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    candidates
        .map(|c| (distance(word, c), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Edits (insert, delete, replace, swap of neighbours counted as two) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i.saturating_add(1);
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal.saturating_add(usize::from(x != *y));
            diagonal = *cell;
            left = replaced
                .min(diagonal.saturating_add(1))
                .min(left.saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_far_ones_are_not_offered() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        let known = ["endpoint", "endpoints", "tls"];
        assert_eq!(nearest("endpont", known.into_iter()), Some("endpoint"));
        assert_eq!(nearest("tsl", known.into_iter()), Some("tls"));
        assert_eq!(nearest("banana", known.into_iter()), None);
    }
}
