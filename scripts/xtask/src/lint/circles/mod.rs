//! No circles: files of a crate do not take from each other in a ring; whoever wants to understand one would have to read
//! them all. What a file takes from the `mod.rs` of its own folder does not count: that is what the folder has in common.

mod names;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use names::Crate;
use source::Source;

use super::Findings;

/// What a file takes from others: file, and the names.
type Takes<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

/// Checks the crates among these Rust files; those for tests alone are left out.
pub(super) fn check(texts: &BTreeMap<String, String>, findings: &mut Findings) {
    let is_root = |file: &str| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
    for root in texts.keys().filter(|f| is_root(f) && !f.starts_with("tests/")) {
        check_crate(root, texts, findings);
    }
}

fn check_crate(root: &str, texts: &BTreeMap<String, String>, findings: &mut Findings) {
    let house = Crate::new(root, |file| texts.get(file).map(|text| Source::read(text)));
    let takes = house.takes();
    for circle in circles(&takes) {
        let mut seen = Vec::new();
        for (from, to) in circle.iter().filter_map(|f| takes.get(f).map(|t| (f, t))) {
            for (to, names) in to.iter().filter(|(to, _)| circle.contains(*to)) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                seen.push(format!("\n    {from} takes {} from {to}", names.join(", ")));
            }
        }
        findings.error(format!(
            "{} files in a circle. Remedy: move what they share to the file where it belongs{}",
            circle.len(),
            seen.concat()
        ));
    }
}

/// Groups of files that reach each other.
fn circles<'a>(takes: &Takes<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = takes.keys().map(|f| (*f, reach(takes, f))).collect();
    let mut out: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &reached {
        let circle: BTreeSet<&str> = others
            .iter()
            .filter(|o| reached.get(*o).is_some_and(|back| back.contains(file)))
            .copied()
            .collect();
        if circle.contains(file) && !out.contains(&circle) {
            out.push(circle);
        }
    }
    out
}

fn reach<'a>(takes: &Takes<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for to in takes.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*to) {
                next.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
            .collect();
        let mut findings = Findings::default();
        check(&texts, &mut findings);
        findings.errors
    }

    #[test]
    fn files_that_take_from_each_other_are_an_error_that_names_what() {
        let found = errors(&[
            ("src/lib.rs", "mod a;\nmod b;\nmod c;"),
            ("src/a.rs", "use crate::b::B;\npub struct A(B);"),
            ("src/b.rs", "pub struct B;\nfn f() { super::c::c() }"),
            ("src/c.rs", "use super::a;\npub fn c() { let _ = a::A::new(); }"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        for edge in [
            "src/a.rs takes B from src/b.rs",
            "src/b.rs takes c from src/c.rs",
            "src/c.rs takes A from src/a.rs",
        ] {
            assert!(found[0].contains(edge), "{found:?}");
        }
    }

    #[test]
    fn what_a_folder_has_in_common_stands_in_its_face_without_a_circle() {
        let files = [
            ("src/lib.rs", "mod d;\nmod face;"),
            (
                "src/face/mod.rs",
                "mod a;\nmod b;\npub use b::b;\npub struct C(a::A);",
            ),
            ("src/face/a.rs", "use super::C;\npub struct A;\nfn f(_: C) {}"),
            ("src/face/b.rs", "use super::a::A;\npub fn b(_: A) {}"),
        ];
        let with = |d| errors(&[&files[..], &[("src/d.rs", d)]].concat());
        assert!(with("use crate::face::b;").is_empty());
        // Whoever is outside the folder takes from the face as from any file.
        let files = [&files[..2], &[files[3]]].concat();
        let a = "use crate::d::D;\npub struct A(D);";
        let d = "use crate::face::C;\npub struct D;\nfn f(_: C) {}";
        let found = errors(&[&files[..], &[("src/face/a.rs", a), ("src/d.rs", d)]].concat());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("3 files"), "{found:?}");
    }

    #[test]
    fn through_a_face_the_file_is_found_that_has_the_name() {
        let found = errors(&[
            ("src/lib.rs", "mod a;\nmod face;"),
            (
                "src/a.rs",
                "use crate::face::{B, b};\npub struct A;\nfn f(_: B) { b() }",
            ),
            ("src/face/mod.rs", "mod b;\npub use b::*;\npub use b::b;"),
            (
                "src/face/b.rs",
                "use crate::a::A;\npub struct B(A);\npub fn b() {}",
            ),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("src/a.rs takes B, b from src/face/b.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn what_tests_take_does_not_count() {
        let found = errors(&[
            ("src/lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod bench;"),
            ("src/a.rs", "use crate::b::B;\npub struct A(B);"),
            (
                "src/b.rs",
                "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
            ("src/bench.rs", "use crate::a::A;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
