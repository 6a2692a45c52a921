/// The word of `candidates` closest to `word`, if it is near enough to be what was meant.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|c| (distance(word, c), c))
        .min()
        .filter(|(d, c)| *d <= c.len().max(word.len()) / 3 + 1)
        .map(|(_, c)| c)
}

/// Levenshtein distance, row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        let mut left = i + 1;
        for ((diagonal, up), cb) in row.iter().zip(row.iter().skip(1)).zip(&b) {
            left = (diagonal + usize::from(ca != *cb)).min(up + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// From serde's text for an unknown key, a suggestion. serde gives only text; nothing else depends on it.
pub(super) fn for_message(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (word, rest) = rest.split_once('`')?;
    let near = nearest(word, rest.split('`').skip(1).step_by(2))?;
    Some(format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_is_recognised() {
        let m = "batch: unknown field `submit_intervall`, expected one of `submit_interval`, `max_size`";
        assert_eq!(for_message(m).unwrap(), "did you mean `submit_interval`?");
        assert_eq!(
            for_message("unknown field `zzzzzzzz`, expected `id` or `rpc`"),
            None
        );
        assert_eq!(for_message("something else"), None);
    }
}
