//! Links of the documentation lead to files that exist.

use std::path::Path;

use super::Findings;

/// Checks the relative links `[text](path)` of a Markdown file.
pub(super) fn check(root: &Path, file: &str, text: &str, findings: &mut Findings) {
    if !file.ends_with(".md") {
        return;
    }
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    for target in targets(text) {
        let path = target.split('#').next().unwrap_or_default();
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            continue;
        }
        if !root.join(folder).join(path).exists() {
            findings.error(format!("{file} links to {path}, which does not exist"));
        }
    }
}

fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_what_stands_in_parentheses_after_brackets() {
        let found: Vec<_> = targets("see [a](b.md) and [c](d/e.md#f), not (g)").collect();
        assert_eq!(found, ["b.md", "d/e.md#f"]);
    }
}
