//! Words that do not belong into the repository: unfinished work, and names of a builder's machine.

use super::Findings;

/// Written in two parts, so that this file does not find itself.
const FORBIDDEN: [(&str, &str, &str); 9] = [
    (
        "TO",
        "DO",
        "unfinished work: finish it or describe it in the documentation",
    ),
    (
        "FIX",
        "ME",
        "unfinished work: finish it or describe it in the documentation",
    ),
    (
        "XX",
        "X ",
        "unfinished work: finish it or describe it in the documentation",
    ),
    ("not yet ", "implemented", "unfinished work: finish it"),
    ("not ", "implemented", "unfinished work: finish it"),
    ("/wo", "rk/", "a path of one machine"),
    ("/ro", "ot/.", "a path of one machine"),
    ("arti", "factory", "the name of a package mirror"),
    ("BEGIN PRIVATE", " KEY-----\nM", "a private key"),
];

/// Finds forbidden words, line by line.
pub(super) fn check(file: &str, text: &str, findings: &mut Findings) {
    if file == "LICENSE"
        || file.ends_with(".lock")
        || file.ends_with("go.sum")
        || file.ends_with("package-lock.json")
    {
        return;
    }
    for (head, tail, why) in FORBIDDEN {
        let word = format!("{head}{tail}");
        if let Some(at) = text.find(&word) {
            let line = text.get(..at).unwrap_or_default().lines().count().max(1);
            findings.error(format!("{file}:{line} says {word:?}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_word_is_found_with_its_line() {
        let mut findings = Findings::default();
        check("a.md", &format!("one\ntwo {}{}\n", "TO", "DO"), &mut findings);
        assert!(findings.errors[0].starts_with("a.md:2 "), "{:?}", findings.errors);
    }
}
