//! Findings about memory, disks, heat, messages, the agent itself, and the site's own checks. Pure.

use std::time::Instant;

use super::{Beside, Findings, catalogue};
use crate::probe::checks::Verdict;
use crate::sample::Figures;
use crate::status::SKEW_MS;

/// CPUs throttle at 95–105 °C.
const CPU_HOT: i32 = 95;
/// Of 60 seconds, the share in which *all* tasks waited for memory, in 0.01 %: the node thrashes.
const MEMORY_STALLED: u64 = 2000;
/// The same for disks, which are waited for in normal work too.
const IO_STALLED: u64 = 5000;
/// An error is news for so long: it is on record for a day, and what it led to may have been mended since.
pub(super) const RECENT: u64 = 3600;
/// So often within a day a link may go down.
pub(super) const FLAPS: u32 = 3;

/// Want of memory.
pub(super) fn memory(figures: &Figures, now: Instant, into: &mut Findings) {
    if let Some(memory) = figures.memory.fresh(now)
        && memory.available < memory.total / 100
    {
        let (free, all) = (memory.available >> 20, memory.total >> 20);
        into.add(
            "memory_exhausted",
            format!("{free} MiB of {all} MiB memory are available"),
        );
    }
    stalled(figures, now, "memory", MEMORY_STALLED, "memory_stalled", into);
}

fn stalled(figures: &Figures, now: Instant, resource: &str, limit: u64, code: &str, into: &mut Findings) {
    let all = figures.pressure.fresh(now).into_iter().flatten();
    for full in all.filter(|p| p.resource == resource).filter_map(|p| p.full) {
        if full >= limit {
            let (whole, part) = (full / 100, full % 100);
            into.add(
                code,
                format!("all tasks waited for {resource} in {whole}.{part:02} % of the last minute"),
            );
        }
    }
}

/// Full and slow disks.
pub(super) fn disks(figures: &Figures, _beside: &Beside<'_>, now: Instant, into: &mut Findings) {
    if let Some(storage) = figures.storage.fresh(now)
        && storage.available < storage.total / 100
    {
        into.add(
            "storage_full",
            format!("{} MiB of storage are available", storage.available >> 20),
        );
    }
    stalled(figures, now, "io", IO_STALLED, "io_stalled", into);
}

/// The CPU's temperature.
pub(super) fn heat(figures: &Figures, now: Instant, into: &mut Findings) {
    if let Some(celsius) = figures.temperature.fresh(now).filter(|c| **c >= CPU_HOT) {
        into.add("cpu_hot", format!("the CPU has {celsius} °C"));
    }
}

/// What the kernel and the journal have written.
pub(super) fn messages(figures: &Figures, beside: &Beside<'_>, now: Instant, into: &mut Findings) {
    let Some(errors) = figures.errors.fresh(now) else {
        return;
    };
    let count = |class: &str| errors.classes.get(class).copied().unwrap_or(0);
    for (class, code, least) in [
        ("mce", "machine_checks", 1),
        ("oom", "memory_killed", 1),
        ("pcie", "pcie_errors", 1),
        ("service", "service_errors", 10),
    ] {
        let n = count(class);
        if n >= least {
            into.add(code, format!("{n} within 24 h"));
        }
    }
    let recent = |at: u64| at.saturating_add(RECENT) > beside.unix;
    for (class, code) in [
        ("io", "disk_errors"),
        ("filesystem", "filesystem_errors"),
        ("hang", "kernel_hung"),
    ] {
        if let Some(last) = errors.last_of(class).filter(|l| recent(l.at)) {
            into.add_of(code, device_in(&last.text), last.text.clone());
        }
    }
    for (name, said) in errors.servers.iter().filter(|(_, said)| recent(said.at)) {
        into.add_of("file_server_errors", name, said.text.clone());
    }
    // Several cards that go down once each, with their switch, do not flap.
    for (name, link) in &errors.links {
        if link.messages >= FLAPS && recent(link.last) {
            let message = format!(
                "{name}: {} messages of its driver within 24 h that the link is down or sends nothing",
                link.messages
            );
            into.add_of("link_flapping", name, message);
        }
    }
}

/// What is wrong with the agent's own place.
pub(super) fn agent(beside: &Beside<'_>, into: &mut Findings) {
    for name in beside.stuck {
        into.add_of("collector_stuck", name, format!("{name} does not answer"));
    }
    if let Some(skew) = beside.skew_ms.filter(|ms| ms.unsigned_abs() > SKEW_MS) {
        let way = if skew > 0 { "behind" } else { "ahead of" };
        let seconds = skew.unsigned_abs() / 1000;
        into.add(
            "clock_skew",
            format!("this clock is {seconds} s {way} the gateway's; synchronise it (NTP)"),
        );
    }
    if let Some(out) = beside.out {
        into.add("out_of_service", format!("out of service for {}", out.why()));
    }
    for (code, message) in beside.tasks {
        into.add(code, message.clone());
    }
    if let Some(message) = beside.hardware {
        into.add("hardware_changed", message);
    }
}

/// The site's own checks, and findings that root has put in to rehearse.
pub(super) fn checks(figures: &Figures, now: Instant, into: &mut Findings) {
    let Some(checks) = figures.checks.fresh(now) else {
        return;
    };
    for result in &checks.results {
        let code = match result.verdict {
            Verdict::Passed => continue,
            Verdict::Degraded => "site_check_degraded",
            Verdict::Failed => "site_check_failed",
        };
        into.add_of(
            code,
            &result.name,
            format!("check {}: {}", result.name, result.line),
        );
    }
    for (code, message) in &checks.rehearsed {
        if catalogue::kind(code).is_some() {
            // Two lines are two parts that fail.
            into.add_of(code, message, format!("(rehearsed) {message}"));
        }
    }
}

/// The disk or file system's device that a message of the kernel names; empty if it names none.
fn device_in(text: &str) -> &str {
    let mut words = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        .filter(|w| !w.is_empty());
    // `EXT4-fs error (device sda1)`, `I/O error, dev sda, sector 0`, `XFS (nvme0n1p1): …`.
    while let Some(word) = words.next() {
        if matches!(word, "dev" | "device" | "XFS") {
            return words.next().unwrap_or_default();
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::device_in;

    #[test]
    fn the_device_that_a_message_names_is_found() {
        for (text, device) in [
            (
                "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2",
                "sda1",
            ),
            (
                "blk_update_request: I/O error, dev nvme0n1, sector 0 op 0x0",
                "nvme0n1",
            ),
            ("Buffer I/O error on dev dm-3, logical block 0", "dm-3"),
            ("XFS (sdb2): Metadata I/O Error", "sdb2"),
            ("INFO: task cp:77 blocked for more than 120 seconds.", ""),
            ("dev", ""),
        ] {
            assert_eq!(device_in(text), device, "{text}");
        }
    }
}
