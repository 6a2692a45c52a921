//! Files stay short enough to be read in one sitting.

use super::Findings;

const WARN_LINES: usize = 300;
const MAX_LINES: usize = 400;

/// Counts the production lines of a Rust file: all before its tests, without blank lines and comments.
pub(super) fn check(file: &str, text: &str, findings: &mut Findings) {
    if !file.ends_with(".rs") || is_test(file) {
        return;
    }
    let lines = production_lines(text);
    if lines > MAX_LINES {
        findings.error(format!(
            "{file} has {lines} production lines, more than {MAX_LINES}. Remedy: split it by verb"
        ));
    } else if lines > WARN_LINES {
        findings.warn(format!(
            "{file} has {lines} production lines, more than {WARN_LINES}"
        ));
    }
}

fn is_test(file: &str) -> bool {
    file.starts_with("tests/")
        || file.contains("/tests/")
        || file.ends_with("/tests.rs")
        || file.ends_with("_tests.rs")
}

fn production_lines(text: &str) -> usize {
    text.lines()
        .map(str::trim)
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! doc\n\nfn a() {}\n// why\nfn b() {}\n#[cfg(test)]\nmod tests {\n fn c() {}\n}\n";
        assert_eq!(production_lines(text), 2);
    }

    #[test]
    fn a_file_over_the_limit_is_an_error() {
        let mut findings = Findings::default();
        check("a/src/b.rs", &"fn a() {}\n".repeat(MAX_LINES + 1), &mut findings);
        assert_eq!(findings.errors.len(), 1);
        check(
            "a/tests/b.rs",
            &"fn a() {}\n".repeat(MAX_LINES + 1),
            &mut findings,
        );
        assert_eq!(findings.errors.len(), 1);
    }
}
