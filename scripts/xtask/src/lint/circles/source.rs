//! What a Rust file declares, imports and names, read from its text without a parser: words and punctuation are enough.

use std::collections::BTreeSet;

/// Path of names, such as `crate::key::load`.
pub(super) type Names = Vec<String>;

/// A `use` of one name, or of all (`*`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// The name in this file; none for all names.
    pub(super) name: Option<String>,
    pub(super) path: Names,
    /// `pub`: it may be there for others alone.
    pub(super) face: bool,
}

/// The production part of a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// `mod x;`
    pub(super) modules: Vec<String>,
    pub(super) imports: Vec<Import>,
    /// Types, functions and the like that it has.
    pub(super) items: BTreeSet<String>,
    /// Paths in its code; of single names those that look like a type or a call.
    pub(super) paths: BTreeSet<Names>,
}

const ITEMS: [&str; 9] = [
    "struct", "enum", "union", "trait", "type", "fn", "const", "static", "mod",
];

impl Source {
    pub(super) fn read(text: &str) -> Self {
        let words = words(text);
        let mut out = Self::default();
        let mut at = 0;
        let mut face = false;
        while let Some(word) = words.get(at) {
            let next = words.get(at + 1).map_or("", String::as_str);
            match word.as_str() {
                "#" if test_only(&words, at) => {
                    at = end_of_item(&words, at);
                    continue;
                }
                "use" => {
                    let end = find(&words, at, ";");
                    let tree = words.get(at + 1..end).unwrap_or_default();
                    imports(tree, &mut Vec::new(), face, &mut out.imports);
                    at = end;
                }
                "mod" if words.get(at + 2).is_some_and(|w| w == ";") => {
                    out.modules.push(next.to_owned());
                    at += 1;
                }
                "pub" if next == "(" => at = find(&words, at, ")"),
                // A `const fn` is named by the next word but one.
                item if ITEMS.contains(&item) && !ITEMS.contains(&next) => {
                    out.items.insert(next.to_owned());
                    at += 1;
                }
                "." | "$" => at += 1,
                word if is_name(word) && word != "pub" => {
                    let (path, end) = path(&words, at);
                    let called = words.get(end).is_some_and(|w| w == "(");
                    if path.len() > 1 || called || word.starts_with(char::is_uppercase) {
                        out.paths.insert(path);
                    }
                    at = end.max(at + 1) - 1;
                }
                _ => {}
            }
            face = word == "pub";
            at += 1;
        }
        out
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn test_only(words: &[String], at: usize) -> bool {
    let attribute: String = words.iter().skip(at).take(8).map(String::as_str).collect();
    attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test,")
}

/// Behind the item that begins here, attributes and all.
fn end_of_item(words: &[String], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(from) {
        match word.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (word == "}" || word == ";" || word == ",") {
            return at + 1;
        }
    }
    words.len()
}

fn find(words: &[String], from: usize, what: &str) -> usize {
    let found = words.iter().skip(from).position(|w| w == what);
    found.map_or(words.len(), |n| from + n)
}

/// The path that begins here, and where it ends.
fn path(words: &[String], from: usize) -> (Names, usize) {
    let mut path = Vec::new();
    let mut at = from;
    while let Some(word) = words.get(at).filter(|w| is_name(w)) {
        path.push(word.clone());
        at += 1;
        if words.get(at).is_none_or(|w| w != "::") {
            break;
        }
        at += 1;
    }
    (path, at)
}

/// The imports of a tree such as `a::{b, c::{self, d as e}, f::*}`.
fn imports(tree: &[String], before: &mut Names, face: bool, out: &mut Vec<Import>) {
    let (names, at) = path(tree, 0);
    let depth = before.len();
    before.extend(names);
    match tree.get(at).map(String::as_str) {
        Some("{") => {
            let inner = tree.get(at + 1..tree.len() - 1).unwrap_or_default();
            let mut open = 0_usize;
            let branches = inner.split(|word| {
                match word.as_str() {
                    "{" => open += 1,
                    "}" => open = open.saturating_sub(1),
                    _ => {}
                }
                open == 0 && word == ","
            });
            for branch in branches.filter(|b| !b.is_empty()) {
                imports(branch, before, face, out);
            }
        }
        Some("*") => out.push(Import {
            name: None,
            path: before.clone(),
            face,
        }),
        end => {
            let mut path = before.clone();
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            // `use a as b`: the path ends before `as`.
            let alias = end.filter(|w| *w == "as").and_then(|_| tree.get(at + 1));
            let name = alias.or(path.last()).cloned();
            out.push(Import { name, path, face });
        }
    }
    before.truncate(depth);
}

/// Names, `::` and single marks; comments, texts, characters and lifetimes left out.
fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |n| n + 2)
        } else if let Some(length) = literal(rest) {
            length
        } else if c.is_alphanumeric() || c == '_' {
            let length = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            out.extend(rest.get(..length).map(str::to_owned));
            length
        } else if rest.starts_with("::") {
            out.push("::".to_owned());
            2
        } else {
            if !c.is_whitespace() {
                out.push(c.to_string());
            }
            c.len_utf8()
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}

/// The length of a text, a character or a lifetime, if one begins here.
fn literal(rest: &str) -> Option<usize> {
    let mark = rest
        .strip_prefix("br")
        .or_else(|| rest.strip_prefix(['b', 'c', 'r']))
        .unwrap_or(rest);
    let prefix = rest.len() - mark.len();
    let raw = rest.get(..prefix)?.ends_with('r');
    if raw {
        let quoted = mark.trim_start_matches('#');
        let end = format!("\"{}", "#".repeat(mark.len() - quoted.len()));
        let inner = quoted.strip_prefix('"')?;
        let length = inner.find(&end).map_or(inner.len(), |n| n + end.len());
        return Some(rest.len() - inner.len() + length);
    }
    if let Some(inner) = mark.strip_prefix('"') {
        return Some(prefix + 1 + closed(inner, '"'));
    }
    let inner = mark.strip_prefix('\'')?;
    let mut two = inner.chars();
    match (two.next()?, two.next()) {
        ('\\', _) => Some(prefix + 1 + closed(inner, '\'')),
        (c, Some('\'')) => Some(prefix + 2 + c.len_utf8()),
        _ => inner
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .map(|length| 1 + length),
    }
}

/// Bytes up to and with the closing mark, escapes skipped.
fn closed(inner: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    inner.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(name: &str, path: &str, face: bool) -> Import {
        Import {
            name: Some(name.into()),
            path: path.split("::").map(Into::into).collect(),
            face,
        }
    }

    #[test]
    fn a_tree_of_imports_is_each_of_its_names() {
        let source = Source::read(
            "pub(in crate::x) use super::{a, b::{self, C as D}};\nuse crate::e::F;\npub use g::*;",
        );
        let expected = [
            import("a", "super::a", true),
            import("b", "super::b", true),
            import("D", "super::b::C", true),
            import("F", "crate::e::F", false),
            Import {
                name: None,
                path: vec!["g".into()],
                face: true,
            },
        ];
        assert_eq!(source.imports, expected);
    }

    #[test]
    fn what_stands_in_tests_comments_and_texts_is_not_read() {
        let source = Source::read(
            "// use a::b;\nconst fn f<'a>(_: &'static str) { g(\"h::i\", 'j', r#\"k::l\"\"#, '\\'', m::n::<O>()) }\n\
             #[cfg(test)]\nmod tests { use p::q; }\n#[cfg(test)]\nmod r;\nmod s;",
        );
        assert!(source.imports.is_empty());
        assert_eq!(source.modules, ["s"]);
        assert_eq!(source.items, BTreeSet::from(["f".to_owned()]));
        let paths: Vec<_> = source.paths.iter().map(|p| p.join("::")).collect();
        assert_eq!(paths, ["O", "g", "m::n"]);
    }

    #[test]
    fn methods_and_fields_are_not_names_of_this_file() {
        assert!(Source::read("fn f() { a.g().h }").paths.is_empty());
    }
}
