//! What the controller knows of this node: one line of `scontrol --oneliner --details show node`.

use hpc_schema::heartbeat::SlurmState;

/// The node as Slurm sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmNode {
    /// Its state in the specification's words.
    pub state: SlurmState,
    /// Its state in Slurm's words.
    pub state_text: String,
    /// Why it is drained or down.
    pub reason: Option<String>,
    /// `CPUTot`.
    pub cpus: u32,
    /// `CPUAlloc`.
    pub cpus_allocated: u32,
    /// `CPUEfctv`: without the cores that Slurm keeps for itself.
    pub cpus_usable: u32,
    /// `RealMemory` in MiB.
    pub memory_mib: u64,
    /// `AllocMem` in MiB.
    pub memory_allocated_mib: u64,
    /// GPUs configured; none if the node has no such resource.
    pub gpus: Option<u32>,
    /// GPUs in use.
    pub gpus_allocated: Option<u32>,
    /// `Version` of its slurmd.
    pub version: Option<String>,
}

/// Reads the line; none unless it is about `node` and holds CPUs and memory.
#[must_use]
pub(super) fn parse(text: &str, node: &str) -> Option<SlurmNode> {
    let line = text.lines().find(|l| value(l, "NodeName") == Some(node))?;
    let number = |key| value(line, key).and_then(|v| v.parse::<u64>().ok());
    let count = |key| number(key).and_then(|n| u32::try_from(n).ok());
    let cpus = count("CPUTot").filter(|n| *n > 0)?;
    let state_text = value(line, "State")?;
    // Details come with GresUsed; sites that account for GPUs also have them in AllocTRES.
    let gpus = value(line, "Gres")
        .and_then(gpus_in)
        .or_else(|| tres(line, "CfgTRES"));
    let used = value(line, "GresUsed")
        .and_then(gpus_in)
        .or_else(|| tres(line, "AllocTRES"));
    Some(SlurmNode {
        state: state(state_text),
        state_text: state_text.to_owned(),
        reason: reason(line),
        cpus,
        cpus_allocated: count("CPUAlloc")?.min(cpus),
        cpus_usable: count("CPUEfctv").filter(|n| *n > 0).unwrap_or(cpus).min(cpus),
        memory_mib: number("RealMemory").filter(|n| *n > 0)?,
        memory_allocated_mib: number("AllocMem")?,
        gpus,
        gpus_allocated: used.filter(|_| gpus.is_some()),
        version: value(line, "Version").map(str::to_owned),
    })
}

/// The first `key=value` of the line: free text of administrators (Comment, Reason) comes last.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace()
        .find_map(|w| w.strip_prefix(key)?.strip_prefix('='))
        .filter(|v| !matches!(*v, "" | "(null)" | "N/A" | "n/a" | "n/s"))
}

/// `Reason=bad disk [root@2026-11-21T10:00:00]`
fn reason(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(" Reason=")?;
    let end = rest.find(']').map_or(rest.len(), |i| i.saturating_add(1));
    Some(rest.get(..end)?.trim().chars().take(200).collect())
}

/// `gpu:a100:4(S:0-1),gpu:h100:2,shard:8` → 6; none without any GPU.
fn gpus_in(gres: &str) -> Option<u32> {
    let mut total = None;
    let mut depth = 0u32;
    let entries = gres.split(|c| {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for entry in entries {
        let entry = entry.split('(').next().unwrap_or_default();
        let mut parts = entry.split(':');
        if parts.next() != Some("gpu") {
            continue;
        }
        // `gpu` alone is one; otherwise the last part is the number.
        let n = parts.next_back().map_or(Some(1), |n| n.parse::<u32>().ok())?;
        total = Some(total.unwrap_or(0u32).saturating_add(n));
    }
    total
}

/// `cpu=2,mem=4000M,gres/gpu=4`
fn tres(line: &str, key: &str) -> Option<u32> {
    value(line, key)?
        .split(',')
        .find_map(|t| t.strip_prefix("gres/gpu=")?.parse().ok())
}

#[cfg(test)]
impl SlurmNode {
    /// A small one without work, for tests to begin with.
    pub(crate) fn idle() -> Self {
        Self {
            state: SlurmState::Idle,
            state_text: "IDLE".into(),
            reason: None,
            cpus: 2,
            cpus_allocated: 0,
            cpus_usable: 2,
            memory_mib: 1000,
            memory_allocated_mib: 0,
            gpus: None,
            gpus_allocated: None,
            version: None,
        }
    }
}

/// What a node's state says while it is down.
const DOWN: [&str; 7] = [
    "DOWN",
    "ERROR",
    "NO_RESPOND",
    "NOT_RESPONDING",
    "INVALID_REG",
    "POWERED_DOWN",
    "REBOOT_ISSUED",
];
/// What it says while the node is kept from work.
const DRAIN: [&str; 7] = [
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FAILING",
    "MAINT",
    "MAINTENANCE",
];

/// `MIXED+DRAIN*`: base state, flags, each without the sign for what is happening to it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('+')
        .map(|w| w.trim_end_matches(|c: char| !c.is_ascii_alphabetic() && c != '_'))
}

/// Whether a node in this state is kept from work by somebody's word, also while it is down.
pub(super) fn is_withheld(text: &str) -> bool {
    words(text).any(|w| DRAIN.contains(&w))
}

fn state(text: &str) -> SlurmState {
    if text.contains('*') || words(text).any(|w| DOWN.contains(&w)) {
        SlurmState::Down
    } else if is_withheld(text) {
        SlurmState::Drain
    } else {
        match words(text).next().unwrap_or_default() {
            "IDLE" | "PLANNED" | "RESERVED" => SlurmState::Idle,
            "ALLOCATED" | "ALLOC" | "COMPLETING" => SlurmState::Allocated,
            "MIXED" => SlurmState::Mixed,
            _ => SlurmState::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slurm 22.05.8, one job with one of four GPUs.
    const MIXED: &str = include_str!("../../../fixtures/slurm/node-mixed-22.05.txt");
    /// Slurm 22.05.8, drained with `scontrol update … state=drain reason=…` while that job ran.
    const DRAINING: &str = include_str!("../../../fixtures/slurm/node-draining-22.05.txt");

    #[test]
    fn a_recorded_node_is_read() {
        let n = parse(MIXED, "vm").unwrap();
        assert_eq!(n.state, SlurmState::Mixed);
        assert_eq!((n.cpus, n.cpus_allocated, n.cpus_usable), (2, 1, 2));
        assert_eq!((n.memory_mib, n.memory_allocated_mib), (4000, 1000));
        assert_eq!((n.gpus, n.gpus_allocated), (Some(4), Some(1)));
        assert_eq!((n.version.as_deref(), n.reason), (Some("22.05.8"), None));
        assert_eq!(parse(MIXED, "other"), None);
        let n = parse(DRAINING, "vm").unwrap();
        assert_eq!(
            (n.state, n.state_text.as_str()),
            (SlurmState::Drain, "MIXED+DRAIN")
        );
        assert_eq!(
            n.reason.as_deref(),
            Some("State=IDLE CPUTot=64 [root@2026-11-21T23:40:00]")
        );
        assert_eq!(n.cpus, 2, "what administrators write is no figure");
    }

    #[test]
    fn every_state_of_slurm_has_a_word_of_the_specification() {
        use SlurmState::{Allocated, Down, Drain, Idle, Mixed, Unknown};
        for (text, expected) in [
            ("IDLE", Idle),
            ("IDLE+PLANNED", Idle),
            ("IDLE+CLOUD", Idle),
            ("ALLOCATED", Allocated),
            ("ALLOCATED+COMPLETING", Allocated),
            ("MIXED", Mixed),
            ("MIXED+PLANNED", Mixed),
            ("IDLE+DRAIN", Drain),
            ("MIXED+DRAIN", Drain),
            ("IDLE+MAINTENANCE", Drain),
            ("DOWN", Down),
            ("DOWN*", Down),
            ("DOWN+DRAIN", Down),
            ("IDLE*", Down),
            ("IDLE+NOT_RESPONDING", Down),
            ("IDLE+REBOOT_ISSUED", Down),
            ("IDLE~+POWERED_DOWN", Down),
            ("UNKNOWN", Unknown),
            ("FUTURE", Unknown),
        ] {
            assert_eq!(state(text), expected, "{text}");
        }
    }

    #[test]
    fn gpus_are_counted_over_their_types() {
        assert_eq!(gpus_in("gpu:a100:4(S:0-1),gpu:h100:2(S:0,1),shard:8"), Some(6));
        assert_eq!(gpus_in("gpu:a100:0(IDX:N/A)"), Some(0));
        assert_eq!(gpus_in("gpu:4"), Some(4));
        assert_eq!(gpus_in("gpu"), Some(1));
        assert_eq!(gpus_in("lustre:1"), None);
        assert_eq!(gpus_in("gpu:a100:x"), None);
        assert_eq!(
            tres("CfgTRES=cpu=2,mem=4000M,gres/gpu=8 AllocTRES=", "CfgTRES"),
            Some(8)
        );
        assert_eq!(tres("CfgTRES=cpu=2 AllocTRES=", "AllocTRES"), None);
    }

    #[test]
    fn what_is_not_there_is_absent() {
        assert_eq!(parse("", "vm"), None);
        assert_eq!(
            parse(
                "NodeName=vm CPUTot=0 CPUAlloc=0 RealMemory=1 AllocMem=0 State=IDLE",
                "vm"
            ),
            None
        );
        assert_eq!(
            parse("NodeName=vm CPUTot=2 CPUAlloc=0 AllocMem=0 State=IDLE", "vm"),
            None
        );
        let n = parse(
            "NodeName=vm CPUTot=2 CPUAlloc=9 RealMemory=1 AllocMem=0 State=IDLE",
            "vm",
        )
        .unwrap();
        assert_eq!(
            (n.cpus_allocated, n.gpus, n.gpus_allocated, n.version),
            (2, None, None, None)
        );
    }
}
