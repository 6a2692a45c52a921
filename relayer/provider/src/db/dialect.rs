use std::borrow::Cow;

/// A statement with PostgreSQL's parameters: each `?` the next of `$1`, `$2` …, `?3` is `$3`. What stands in quotes stays.
pub(super) fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let (mut next, mut quoted) = (1u32, false);
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\'' {
            quoted = !quoted;
        }
        if c != '?' || quoted {
            out.push(c);
            continue;
        }
        out.push('$');
        if chars.peek().is_some_and(char::is_ascii_digit) {
            continue;
        }
        out.push_str(&next.to_string());
        next += 1;
    }
    out
}

/// Text as PostgreSQL can hold it: it has no NUL, which only somebody's nonsense contains.
pub(super) fn storable(text: Cow<'_, str>) -> String {
    if text.contains('\0') {
        return text.replace('\0', "\u{fffd}");
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_and_quoted_text_stays() {
        assert_eq!(
            numbered("a = ? AND b = ? AND c = 'x?'"),
            "a = $1 AND b = $2 AND c = 'x?'"
        );
        assert_eq!(numbered("a = ?2 OR (?1 IS NULL)"), "a = $2 OR ($1 IS NULL)");
        assert_eq!(numbered("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn a_nul_in_somebodys_text_is_no_reason_to_refuse_the_rest() {
        assert_eq!(storable("a\0b".into()), "a\u{fffd}b");
        assert_eq!(storable("ab".into()), "ab");
    }
}
