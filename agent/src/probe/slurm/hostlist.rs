//! Slurm's way to write many nodes: `gpu[01-04,07],login1`. Only one question is asked of it: is this node in it?

/// Whether `list` names `node`. A list that cannot be read names nobody.
#[must_use]
pub(super) fn contains(list: &str, node: &str) -> bool {
    !node.is_empty() && split(list).any(|entry| matches(entry.as_bytes(), node.as_bytes()))
}

/// At commas outside brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    list.split(move |c| {
        match c {
            '[' => depth = depth.saturating_add(1),
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some(open) = pattern.iter().position(|b| *b == b'[') else {
        return pattern == name;
    };
    let (Some(literal), Some(rest)) = (pattern.get(..open), pattern.get(open.saturating_add(1)..)) else {
        return false;
    };
    let (Some(name), Some(close)) = (name.strip_prefix(literal), rest.iter().position(|b| *b == b']')) else {
        return false;
    };
    let (ranges, tail) = (rest.get(..close), rest.get(close.saturating_add(1)..));
    let (Some(ranges), Some(tail)) = (ranges, tail) else {
        return false;
    };
    // The number may end anywhere in a run of digits: `n[1-2][3-4]`. No name has more than a few digits.
    let digits = name.iter().take(12).take_while(|b| b.is_ascii_digit()).count();
    (1..=digits).any(|n| {
        let (number, after) = name.split_at(n.min(name.len()));
        ranges.split(|b| *b == b',').any(|r| in_range(r, number)) && matches(tail, after)
    })
}

/// `01-04` or `7`; the width of the first number is that of all.
fn in_range(range: &[u8], number: &[u8]) -> bool {
    let mut ends = range.splitn(2, |b| *b == b'-');
    let first = ends.next().unwrap_or_default();
    let last = ends.next().unwrap_or(first);
    let value = |text| super::super::source::unsigned(text);
    let (Some(n), Some(a), Some(b)) = (value(number), value(first), value(last)) else {
        return false;
    };
    let width = first.len();
    let written = number.len() == width || (number.len() > width && number.first() != Some(&b'0'));
    written && (a..=b).contains(&n)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_are_found_in_lists_as_slurm_writes_them() {
        for (list, node, found) in [
            ("vm", "vm", true),
            ("vm1", "vm", false),
            ("vm", "vm1", false),
            ("a,b,vm", "vm", true),
            ("gpu[01-04,07]", "gpu03", true),
            ("gpu[01-04,07]", "gpu07", true),
            ("gpu[01-04,07]", "gpu05", false),
            ("gpu[01-04,07]", "gpu3", false),
            ("gpu[1-12]", "gpu12", true),
            ("gpu[1-12]", "gpu01", false),
            ("gpu[8-12]", "gpu10", true),
            ("login1,gpu[1-2,5],cpu[001-128]-ib", "cpu064-ib", true),
            ("login1,gpu[1-2,5],cpu[001-128]-ib", "cpu064", false),
            ("r[1-2]n[01-16]", "r2n16", true),
            ("r[1-2][3-4]", "r14", true),
            ("r[1-2][3-4]", "r15", false),
            ("(null)", "vm", false),
            ("", "vm", false),
            ("gpu[1-", "gpu1", false),
        ] {
            assert_eq!(contains(list, node), found, "{node} in {list}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(list in "[a-c0-9\\[\\],-]{0,40}", node in "[a-c0-9]{0,12}") {
            prop_assert!(!contains(&list, "") && (list.contains(['[', ',']) || contains(&list, &node) == (list == node && !node.is_empty())));
        }

        #[test]
        fn every_member_of_a_range_is_in_it_and_no_other(a in 0u32..300, n in 0u32..300, x in 0u32..700) {
            let list = format!("n[{a:04}-{:04}]", a + n);
            prop_assert_eq!(contains(&list, &format!("n{x:04}")), (a..=a + n).contains(&x));
        }
    }
}
