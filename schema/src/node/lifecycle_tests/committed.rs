//! The table of all states and inputs, against the committed one.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::table;
use super::*;

#[test]
fn the_committed_table_is_the_codes() {
    let rows = table::rows();
    let text = format!(
        "{}\n```mermaid\n{}```\n",
        table::markdown(&rows),
        table::mermaid(&rows)
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/lifecycle.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == text,
        "lifecycle table changed; set UPDATE_GOLDEN=1 to accept"
    );

    // The page shows the same diagram; it is written by hand around it.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page
        .split_once("```mermaid\n")
        .expect("docs/protocol.md has the diagram");
    let (shown, after) = rest.split_once("```\n").unwrap();
    let drawn = table::mermaid(&rows);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, format!("{before}```mermaid\n{drawn}```\n{after}")).unwrap();
    }
    assert!(
        shown == drawn,
        "the diagram in docs/protocol.md is not the code's; set UPDATE_GOLDEN=1 to accept"
    );
}

#[test]
fn the_table_has_every_input_in_every_state() {
    let rows = table::rows();
    let mut inputs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in &rows {
        let of_state = inputs.entry((row.state, row.drain)).or_default();
        assert!(
            !of_state.contains(&&row.input),
            "{} stands there twice",
            row.input
        );
        of_state.push(&row.input);
    }
    // UNKNOWN and DEREGISTERED know no drain.
    assert_eq!(inputs.len(), 2 * NodeState::ALL.len());
    let unknown = &inputs[&(None, false)];
    for (state, of_state) in &inputs {
        assert_eq!(of_state, unknown, "{state:?}");
    }
}

#[test]
fn the_table_has_every_state_and_no_arrow_beyond_the_specifications() {
    use NodeState::{Active, Deregistered, Drained, Draining, Offline, Pending, Stale};
    let rows = table::rows();
    let states: BTreeSet<_> = rows.iter().map(|r| r.state).collect();
    assert_eq!(states.len(), 8);
    let arrows: BTreeSet<_> = table::arrows(&rows).into_iter().map(|t| (t.from, t.to)).collect();
    let mut expected: BTreeSet<_> = [
        (Pending, Active),
        (Active, Stale),
        (Stale, Active),
        (Stale, Offline),
        (Stale, Draining),
        (Active, Draining),
        (Draining, Drained),
        (Drained, Draining),
        (Draining, Active),
        (Drained, Active),
        (Draining, Offline),
        (Drained, Offline),
        (Offline, Active),
        (Offline, Draining),
        (Deregistered, Pending),
    ]
    .into_iter()
    .map(|(from, to)| (Some(from), to))
    .collect();
    expected.insert((None, Pending));
    for from in NodeState::ALL.into_iter().filter(|s| *s != Deregistered) {
        expected.insert((Some(from), Deregistered));
    }
    assert_eq!(arrows, expected);
}
