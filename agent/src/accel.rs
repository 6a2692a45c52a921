//! Accelerators of virtual machines on this host, as the task agent has seen them work.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Deserialize;

pub use hpc_schema::task::Accel;

use crate::files::read_text;
use crate::machine::accel::Evidence;
use crate::probe::Roots;
use crate::probe::tool::find;
use crate::state::read_json;

/// What the task agent keeps of its probes (`machine::accel`), readable by all.
const MEMORY: &str = "accel.json";

#[derive(Debug, Default, Deserialize)]
struct Kept {
    #[serde(default)]
    seen: BTreeMap<String, Evidence>,
}

/// An accelerator by its name in the environment file: `kvm`, `nvmm` or `tcg`.
#[must_use]
pub fn named(text: &str) -> Option<Accel> {
    [Accel::Kvm, Accel::Nvmm, Accel::Tcg]
        .into_iter()
        .find(|a| a.as_str() == text)
}

/// What works here, the best first. A `/dev/kvm` that nothing has been run with proves nothing, so only what a probe
/// guest of this boot has been run with counts; emulation needs no proof but QEMU, unless one speaks against it.
/// `tasks`: the folder of the task agent, where this node takes tasks.
#[must_use]
pub fn supported(tasks: Option<&Path>, roots: &Roots) -> Vec<Accel> {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    let seen = tasks.map(|dir| evidence(dir, roots)).unwrap_or_default();
    judged(&seen, find(&qemu, None).is_some())
}

/// What was seen since this host has started.
fn evidence(dir: &Path, roots: &Roots) -> BTreeMap<String, Evidence> {
    let path = dir.join(MEMORY);
    let booted = read_text(&roots.proc.join("stat"), 4 << 20)
        .ok()
        .and_then(|stat| {
            let line = stat.lines().find_map(|l| l.strip_prefix("btime "))?;
            line.trim().parse::<i64>().ok()
        });
    let written = std::fs::metadata(&path).map(|m| m.mtime()).ok();
    match (written, booted) {
        // A minute: the clock may have been set since.
        (Some(written), Some(booted)) if written.saturating_add(60) >= booted => {
            read_json::<Kept>(&path).ok().flatten().unwrap_or_default().seen
        }
        _ => BTreeMap::new(),
    }
}

fn judged(seen: &BTreeMap<String, Evidence>, qemu: bool) -> Vec<Accel> {
    if !qemu {
        return Vec::new();
    }
    let works = |a: &Accel| seen.get(a.as_str()).map(|e| e.works);
    let all = [Accel::Kvm, Accel::Nvmm, Accel::Tcg].into_iter();
    all.filter(|a| works(a).unwrap_or(*a == Accel::Tcg)).collect()
}

/// The accelerator in use: the one that is `wanted`, if it works here; else the best that does.
#[must_use]
pub fn selected(wanted: Option<Accel>, supported: &[Accel]) -> Option<Accel> {
    match wanted.filter(|w| *w != Accel::Auto) {
        Some(wanted) => supported.contains(&wanted).then_some(wanted),
        None => supported.first().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_counts_only_where_it_works() {
        let both = [Accel::Kvm, Accel::Tcg];
        assert_eq!(selected(None, &both), Some(Accel::Kvm));
        assert_eq!(selected(Some(Accel::Auto), &both), Some(Accel::Kvm));
        assert_eq!(selected(Some(Accel::Tcg), &both), Some(Accel::Tcg));
        assert_eq!(selected(Some(Accel::Kvm), &[Accel::Tcg]), None);
        assert_eq!(selected(None, &[]), None);
        assert_eq!(named("kvm"), Some(Accel::Kvm));
        assert_eq!((named("auto"), named("hvf")), (None, None));
    }

    #[test]
    fn what_a_probe_guest_of_this_boot_ran_with_counts_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let boot =
            |at: i64| std::fs::write(roots.proc.join("stat"), format!("cpu 1 2\nbtime {at}\n")).unwrap();
        let keep = |kvm: bool, tcg: bool| {
            let one = |works| serde_json::json!({"works": works, "detail": "d", "took_ms": 1, "at": 1});
            let all = serde_json::json!({"key": "k", "seen": {"kvm": one(kvm), "tcg": one(tcg)}});
            std::fs::write(dir.path().join(MEMORY), all.to_string()).unwrap();
        };
        let works = |qemu| judged(&evidence(dir.path(), &roots), qemu);
        boot(0);
        assert_eq!(works(true), [Accel::Tcg], "nothing was tried");
        keep(true, true);
        assert_eq!(works(true), [Accel::Kvm, Accel::Tcg]);
        assert_eq!(works(false), []);
        keep(false, true);
        assert_eq!(works(true), [Accel::Tcg]);
        keep(true, false);
        assert_eq!(works(true), [Accel::Kvm]);
        // Seen before the host has started: firmware may be set otherwise since.
        boot(i64::MAX - 100);
        assert_eq!(works(true), [Accel::Tcg]);
        boot(0);
        std::fs::write(dir.path().join(MEMORY), "damaged").unwrap();
        assert_eq!(works(true), [Accel::Tcg]);
    }
}
