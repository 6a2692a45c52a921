//! `key: value` lines, nested by indentation. What comes out is also YAML.

use std::fmt::{Display, Write as _};

/// Builder of such lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    text: String,
    depth: usize,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// `key: value`.
    pub(crate) fn line(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.indent();
        // Writing to a string cannot fail.
        write!(self.text, "{key}: ").ok();
        self.text.push_str(&scalar(&value.to_string()));
        self.text.push('\n');
        self
    }

    /// `key: value`, or nothing.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<impl Display>) -> &mut Self {
        if let Some(value) = value {
            self.line(key, value);
        }
        self
    }

    /// `key:` with deeper lines below.
    pub(crate) fn block(&mut self, key: &str, inner: impl FnOnce(&mut Self)) -> &mut Self {
        self.indent();
        self.text.push_str(key);
        self.text.push_str(":\n");
        self.depth += 1;
        inner(self);
        self.depth -= 1;
        self
    }

    /// `key:` with `- value` lines below; `key: []` without any.
    pub(crate) fn list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) -> &mut Self {
        let mut values = values.into_iter().peekable();
        self.indent();
        self.text.push_str(key);
        if values.peek().is_none() {
            self.text.push_str(": []\n");
            return self;
        }
        self.text.push_str(":\n");
        for value in values {
            self.indent();
            self.text.push_str("  - ");
            self.text.push_str(&scalar(&value.to_string()));
            self.text.push('\n');
        }
        self
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
    }
}

/// A value on one line: quoted where YAML would read it otherwise, control characters made visible. Text from the chain
/// or from nodes must not move the cursor.
fn scalar(value: &str) -> String {
    let odd_start = |c: char| "!&*-?|>@`\"'%#,[]{}:".contains(c) || c.is_whitespace();
    let quoted = value.is_empty()
        || value.starts_with(odd_start)
        || value.ends_with([':', ' '])
        || value.contains(": ")
        || value.contains(" #")
        || value.chars().any(char::is_control);
    if !quoted {
        return value.to_owned();
    }
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => {
                text.push('\\');
                text.push(c);
            }
            c if c.is_control() => {
                write!(text, "\\u{:04x}", u32::from(c)).ok();
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_nest_and_are_yaml() {
        let mut lines = Lines::new();
        lines.line("a", 1).block("b", |l| {
            l.line("c", "x").list("d", ["e", "f"]);
        });
        lines.list("g", Vec::<String>::new()).maybe("h", None::<u8>);
        let text = lines.finish();
        assert_eq!(text, "a: 1\nb:\n  c: x\n  d:\n    - e\n    - f\ng: []\n");
        let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(yaml["b"]["d"][1], "f");
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor_or_forge_a_line() {
        let mut lines = Lines::new();
        let evil = "x\nstate: active\u{1b}[2J";
        lines.line("name", evil).line("reason", "a: b").line("empty", "");
        let text = lines.finish();
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains('\u{1b}'));
        let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(yaml["name"], evil);
        assert_eq!(yaml["reason"], "a: b");
        assert_eq!(yaml["empty"], "");
    }
}
