//! Values as people read them.

use hpc_schema::registry::{BlockRef, JobsStatus};

use super::Lines;

/// What stands below a list: that there is nothing, or how to go on.
pub(super) fn more(empty: bool, what: &str, next: Option<&str>) -> Option<String> {
    match (next, empty) {
        (Some(next), _) => Some(format!("more: --start-after {next} (or --all)")),
        (None, true) => Some(format!("no {what}")),
        (None, false) => None,
    }
}

pub(super) fn block(lines: &mut Lines, BlockRef { height, time }: &BlockRef) {
    lines.block("block", |l| {
        l.line("height", height).line("time", time);
    });
}

pub(super) fn yes_no(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

pub(super) fn jobs_status(status: JobsStatus) -> &'static str {
    match status {
        JobsStatus::Normal => "normal",
        JobsStatus::AtRisk => "at_risk",
        JobsStatus::Failed => "failed",
    }
}

/// Microseconds as milliseconds.
pub(super) fn millis(us: u32) -> String {
    if us == 0 {
        return "-".into();
    }
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// Seconds by their two largest units.
pub(super) fn span(seconds: u64) -> String {
    let (d, h, m, s) = (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m{s}s"),
        (0, _, _) => format!("{h}h{m}m"),
        _ => format!("{d}d{h}h"),
    }
}
