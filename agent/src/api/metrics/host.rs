//! Load, memory, storage, work.

use std::time::Instant;

use super::{Kind, Number, Page, Source, label, ratio};
use crate::api::board::View;
use crate::api::mount;
use crate::files::read_text;
use crate::heartbeat::capacity;
use crate::probe::host::Load;
use crate::probe::slurm::Answer;
use crate::sample::Figures;

/// The kernel's own word, which stands still: alerts on reboots look for any change.
fn boot_time(source: &Source) -> Option<u64> {
    let stat = read_text(&source.roots.proc.join("stat"), STAT).ok()?;
    stat.lines()
        .find_map(|l| l.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// `/proc/stat` of a host with thousands of processors.
const STAT: u64 = 4 << 20;

pub(super) fn load(page: &mut Page, source: &Source, f: &Figures, now: Instant, unix: u64) {
    let load = f.load.fresh(now);
    for (name, help, pick) in [
        ("node_load1", "1m load average.", (|l| l.one) as fn(&Load) -> u64),
        ("node_load5", "5m load average.", |l| l.five),
        ("node_load15", "15m load average.", |l| l.fifteen),
    ] {
        page.one(Kind::Gauge, name, help, load.map(|l| Number::scaled(pick(l), 6)));
    }
    page.one(
        Kind::Gauge,
        "node_boot_time_seconds",
        "Node boot time, in unixtime.",
        boot_time(source).map(Number::whole),
    );
    page.one(
        Kind::Gauge,
        "node_time_seconds",
        "System time in seconds since epoch (1970).",
        Some(Number::whole(unix)),
    );
    let busy = [
        ("cpu", f.cpu.fresh(now).copied()),
        ("disk", f.disk.fresh(now).map(|d| d.percent)),
        ("network", f.busiest_link(now)),
    ];
    page.family(
        Kind::Gauge,
        "virtengine_node_utilization_ratio",
        "Use over the last interval of measuring: all processors, the busiest disk, the busiest link.",
        busy.into_iter()
            .filter_map(|(of, percent)| Some((vec![label("resource", of)], ratio(percent?)))),
    );
    page.one(
        Kind::Gauge,
        "virtengine_node_temperature_celsius",
        "The CPU's temperature.",
        f.temperature.fresh(now).map(|c| Number::whole(*c)),
    );
    let stalled = f.pressure.fresh(now).into_iter().flatten();
    page.family(
        Kind::Gauge,
        "virtengine_node_pressure_full_ratio",
        "Share of the last minute in which all tasks waited (PSI).",
        stalled.filter_map(|p| Some((vec![label("resource", p.resource)], Number::scaled(p.full?, 4)))),
    );
}

pub(super) fn memory(page: &mut Page, f: &Figures, now: Instant) {
    let m = f.memory.fresh(now);
    page.one(
        Kind::Gauge,
        "node_memory_MemTotal_bytes",
        "Memory information field MemTotal_bytes.",
        m.map(|m| Number::whole(m.total)),
    );
    page.one(
        Kind::Gauge,
        "node_memory_MemAvailable_bytes",
        "Memory information field MemAvailable_bytes.",
        m.map(|m| Number::whole(m.available)),
    );
}

pub(super) fn storage(page: &mut Page, source: &Source, f: &Figures, now: Instant) {
    let Some((s, m)) = f
        .storage
        .fresh(now)
        .zip(mount::of(&source.roots, &source.storage_path))
    else {
        return;
    };
    for (name, help, bytes) in [
        ("node_filesystem_size_bytes", "Filesystem size in bytes.", s.total),
        (
            "node_filesystem_avail_bytes",
            "Filesystem space available to non-root users in bytes.",
            s.available,
        ),
        (
            "node_filesystem_free_bytes",
            "Filesystem free space in bytes.",
            s.total.saturating_sub(s.used),
        ),
    ] {
        let labels = vec![
            label("device", m.device.clone()),
            label("fstype", m.kind.clone()),
            label("mountpoint", m.point.clone()),
        ];
        page.family(Kind::Gauge, name, help, [(labels, Number::whole(bytes))]);
    }
}

pub(super) fn work(page: &mut Page, view: &View, now: Instant) {
    let f = &view.figures;
    if let Some(c) = capacity(f, view.held, view.reserve, view.slurm_cpus, now) {
        let rows = [
            ("cpu_cores", "total", Some(c.cpu_cores_total)),
            ("cpu_cores", "available", Some(c.cpu_cores_available)),
            ("cpu_cores", "allocated", c.cpu_cores_allocated),
            ("memory_gb", "total", Some(c.memory_gb_total)),
            ("memory_gb", "available", Some(c.memory_gb_available)),
            ("memory_gb", "allocated", c.memory_gb_allocated),
            ("gpus", "total", c.gpus_total),
            ("gpus", "available", c.gpus_available),
            ("gpus", "allocated", c.gpus_allocated),
            ("storage_gb", "total", c.storage_gb_total),
            ("storage_gb", "available", c.storage_gb_available),
            ("storage_gb", "allocated", c.storage_gb_allocated),
        ];
        page.family(
            Kind::Gauge,
            "virtengine_node_capacity",
            "Capacity as the heartbeat reports it.",
            rows.into_iter().filter_map(|(resource, part, n)| {
                let labels = vec![label("resource", resource), label("part", part)];
                Some((labels, Number::whole(n?)))
            }),
        );
    }
    if let Some(Answer::Said(jobs)) = f.jobs.fresh(now) {
        let running = i128::try_from(jobs.active.len()).unwrap_or(i128::MAX);
        let rows = [
            ("running", Some(Number::whole(running))),
            ("pending", jobs.pending.map(Number::whole)),
            ("completed_24h", jobs.ended.map(|e| Number::whole(e.completed))),
            ("failed_24h", jobs.ended.map(|e| Number::whole(e.failed))),
        ];
        page.family(
            Kind::Gauge,
            "virtengine_node_jobs",
            "Jobs of this node.",
            rows.into_iter()
                .filter_map(|(state, n)| Some((vec![label("state", state)], n?))),
        );
    }
    if let Some(e) = f.errors.fresh(now).and_then(|e| e.whole()) {
        page.family(
            Kind::Gauge,
            "virtengine_node_messages_24h",
            "Errors and warnings of 24 hours in the kernel's log and the journal.",
            [("error", e.errors), ("warning", e.warnings)]
                .map(|(level, n)| (vec![label("level", level)], Number::whole(n))),
        );
    }
}

/// What `uname` says.
pub(super) fn name(page: &mut Page) {
    let u = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    let labels = vec![
        label("domainname", text(u.domainname())),
        label("machine", text(u.machine())),
        label("nodename", text(u.nodename())),
        label("release", text(u.release())),
        label("sysname", text(u.sysname())),
        label("version", text(u.version())),
    ];
    page.family(
        Kind::Gauge,
        "node_uname_info",
        "Labeled system information as provided by the uname system call.",
        [(labels, Number::whole(1))],
    );
}
