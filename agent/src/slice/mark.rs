//! What of a slice's machine lies among things of others carries whose it is: the task, the effect's place in its journal,
//! and the task domain.

use std::path::Path;

use crate::files::read_text;
use crate::task::effect::Mark;

/// What a mark begins with.
const WORD: &str = "virtengine ";
/// More than any marked file has.
const LIMIT: u64 = 64 << 10;

/// The words of a mark: `virtengine <task>/<step>@<task domain>`.
#[must_use]
pub fn words(mark: &Mark, instance: &str) -> String {
    format!("{WORD}{mark}@{instance}")
}

/// `task/step`, if these words are a mark of this task domain.
#[must_use]
pub fn of<'a>(words: &'a str, instance: &str) -> Option<&'a str> {
    words
        .trim()
        .strip_prefix(WORD)?
        .strip_suffix(instance)?
        .strip_suffix('@')
}

/// The mark in a file: after `# ` in its first line, or as the value of `__virtengine` in JSON.
#[must_use]
pub fn in_file(path: &Path, instance: &str) -> Option<String> {
    let text = read_text(path, LIMIT).ok()?;
    let words = match text.strip_prefix("# ") {
        Some(rest) => rest.lines().next()?,
        None => text.split_once("\"__virtengine\":\"")?.1.split('"').next()?,
    };
    of(words, instance).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_by_its_own_task_domain_alone() {
        let mark = Mark {
            task_id: "task-1".parse().unwrap(),
            step: 7,
        };
        let text = words(&mark, "abc");
        assert_eq!(of(&text, "abc"), Some("task-1/7"));
        assert_eq!(of(&text, "abd"), None);
        assert_eq!(of("task-1/7@abc", "abc"), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for content in [
            format!("# {text}\n52:54:00:00:00:01,10.0.0.1\n"),
            format!("[{{\"labels\":{{\"__virtengine\":\"{text}\"}}}}]"),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(in_file(&path, "abc").as_deref(), Some("task-1/7"));
            assert_eq!(in_file(&path, "other"), None);
        }
        std::fs::write(&path, "52:54:00:00:00:01,10.0.0.1\n").unwrap();
        assert_eq!(in_file(&path, "abc"), None);
    }
}
