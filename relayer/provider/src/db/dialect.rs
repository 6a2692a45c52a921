use std::borrow::Cow;

use super::value::Value;

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

/// A statement whose parameters are told by their order alone, as those of statements that follow each other must be: each is
/// a `?`, and its value stands where it is used. The text goes to the end of `out`.
pub(super) fn in_order<'q>(sql: &str, values: &[Value<'q>], out: &mut String) -> Vec<Value<'q>> {
    let mut used = Vec::with_capacity(values.len());
    let (mut rest, mut next, mut quoted) = (sql, 0, false);
    // Both marks are one byte.
    while let Some((text, after)) = rest.find(['?', '\'']).map(|at| rest.split_at(at + 1)) {
        out.push_str(text);
        rest = after;
        if text.ends_with('\'') {
            quoted = !quoted;
            continue;
        }
        if quoted {
            continue;
        }
        let unnamed = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = rest.strip_suffix(unnamed).unwrap_or_default();
        rest = unnamed;
        let named = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let place = named.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        // One that was not given is null, as in a statement by itself.
        used.push(values.get(place).cloned().unwrap_or(Value::Int(None)));
    }
    out.push_str(rest);
    used
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
    fn parameters_of_statements_that_follow_each_other_stand_in_their_order() {
        let values: Vec<Value<'_>> = (1..=12).map(Value::from).collect();
        let mut out = "BEGIN;".to_owned();
        let used = in_order("a = ?12 AND b = ?1 AND (c = ?12 OR d = 'x?1')", &values, &mut out);
        assert_eq!(out, "BEGIN;a = ? AND b = ? AND (c = ? OR d = 'x?1')");
        assert_eq!(used, [12, 1, 12].map(Value::from));
        let used = in_order("a = ? AND b = ?", &values, &mut String::new());
        assert_eq!(used, [1, 2].map(Value::from));
    }

    #[test]
    fn a_nul_in_somebodys_text_is_no_reason_to_refuse_the_rest() {
        assert_eq!(storable("a\0b".into()), "a\u{fffd}b");
        assert_eq!(storable("ab".into()), "ab");
    }
}
