//! The rows of the troubleshooting tables of specifications 000, 001 and 002, and what of `doctor` and `status` tells of
//! each.

use std::fmt::Write as _;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Specification.
    pub of: &'static str,
    /// Its words.
    pub says: &'static str,
    /// What tells of it: codes of `doctor`, `status` and the log.
    pub told_by: &'static [&'static str],
}

const fn row(of: &'static str, says: &'static str, told_by: &'static [&'static str]) -> Row {
    Row { of, says, told_by }
}

/// Every row but those about Python builds, NVMM, Windows and Docker, which this agent has nothing of.
#[rustfmt::skip] // One line each: it is a table.
pub static ROWS: [Row; 14] = [
    row("000", "Registration fails: token expired", &["token_expired"]),
    row("000", "Heartbeat rejected: clock skew", &["clock_skew", "timestamp_expired", "timestamp_in_future"]),
    row("000", "Auth error: key mismatch", &["key_mismatch"]),
    row("000", "No chain updates: provider daemon offline", &["no_chain_updates", "gateway", "gateway_unreachable", "gateway_timeout"]),
    row("000", "Node stuck in PENDING: cluster not active", &["cluster_inactive"]),
    row("001", "Failed to connect to orchestrator", &["gateway", "gateway_unreachable", "gateway_timeout", "tls_failed"]),
    row("001", "Node not appearing in orchestrator: registration, interval below timeout", &["registered", "not_registered", "interval_not_below_timeout"]),
    row("001", "Memory detection inaccurate", &["memory_figure"]),
    row("002", "selected_accel not supported by host", &["accel"]),
    row("002", "Host not schedulable: heartbeat, enabled", &["node_disabled", "node_health", "not_running"]),
    row("002", "VM launches fail on Linux: /dev/kvm", &["kvm_permission", "accel"]),
    row("002", "Host register returns 422", &["invalid_field", "invalid_capacity"]),
    row("002", "Host register returns 401 or 404", &["token_invalid", "token_used", "unknown_node", "unknown_cluster"]),
    row("002", "Orphan overlays: safety loop, path settings", &["task_leftovers"]),
];

/// The rows as the page shows them.
#[must_use]
pub fn table() -> String {
    let mut out = String::from("| specification | row | told by |\n|---|---|---|\n");
    for r in &ROWS {
        let codes: Vec<String> = r.told_by.iter().map(|c| format!("`{c}`")).collect();
        // Writing to a String does not fail.
        writeln!(out, "| {} | {} | {} |", r.of, r.says, codes.join(", ")).ok();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_and_each_row_has_a_test_that_provokes_it() {
        use std::collections::{BTreeMap, BTreeSet};

        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut proofs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let lines = include_str!("../../fixtures/provoked.txt").lines();
        for line in lines.filter(|l| !l.starts_with('#')) {
            let [table, code, proof] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let (file, test) = proof.split_once("::").unwrap();
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(text.contains(&format!("fn {test}()")), "{line}");
            assert!(proofs.entry(table).or_default().insert(code), "twice: {line}");
        }
        let told: BTreeSet<&str> = ROWS.iter().flat_map(|r| r.told_by.iter().copied()).collect();
        assert_eq!(proofs["row"], told);
        // That one test goes through the whole catalogue but for what no reading brings.
        let evidence = std::fs::read_to_string(root.join("agent/tests/evidence/mod.rs")).unwrap();
        let own = evidence.split_once("const OWN").unwrap().1;
        let own = own.split_once(';').unwrap().1.split_once(';').unwrap().0;
        let own: BTreeSet<&str> = own.split('"').skip(1).step_by(2).chain(["*"]).collect();
        assert_eq!(proofs["health"], own);
    }

    #[test]
    fn the_page_shows_the_rows() {
        let page = include_str!("../../../docs/agent.md");
        assert!(page.contains(&table()), "docs/agent.md should hold:\n{}", table());
    }
}
