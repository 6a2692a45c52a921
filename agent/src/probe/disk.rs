//! How busy the busiest disk was since the last look, from `/proc/diskstats`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::source::{Source, lines, unsigned, words};
use super::{Roots, percent};

/// Reads `/proc/diskstats`; counts whole physical devices (those with `/sys/block/<name>/device`): partitions, loop
/// devices and mappings would count the same work twice.
#[derive(Debug)]
pub struct DiskProbe {
    diskstats: Source,
    sys_block: PathBuf,
    /// The names of the last look → state; none for names that are not physical disks.
    disks: BTreeMap<String, Known>,
    looks: u32,
}

#[derive(Debug)]
struct Known {
    /// The look that has shown it last.
    look: u32,
    before: Option<Before>,
}

#[derive(Debug, Clone, Copy)]
struct Before {
    /// Milliseconds in which the device had requests, since boot.
    io_ms: u64,
    at: Option<Instant>,
}

/// The busiest disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUse {
    /// Its name, as in `/sys/block`.
    pub device: String,
    /// Percent of the time with at least one request in flight.
    pub percent: u8,
}

impl DiskProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            diskstats: Source::new(roots.proc.join("diskstats")),
            sys_block: roots.sys.join("block"),
            disks: BTreeMap::new(),
            looks: 0,
        }
    }

    /// The busiest disk since the last call; none on the first, or without physical disks.
    #[must_use]
    pub fn busiest(&mut self, now: Instant) -> Option<DiskUse> {
        let text = self.diskstats.read().ok()?;
        self.looks = self.looks.wrapping_add(1);
        let look = self.looks;
        let mut best: Option<DiskUse> = None;
        for (name, io_ms) in lines(text).filter_map(parse) {
            if !self.disks.contains_key(name) {
                let physical = self.sys_block.join(name).join("device").exists();
                let before = physical.then_some(Before { io_ms, at: None });
                self.disks.insert(name.to_owned(), Known { look, before });
            }
            let Some(known) = self.disks.get_mut(name) else {
                continue;
            };
            known.look = look;
            let Some(before) = &mut known.before else { continue };
            let then = before.at.replace(now);
            // The counter is 32 bits wide on some kernels and wraps after 49 busy days.
            let busy = io_ms.checked_sub(std::mem::replace(&mut before.io_ms, io_ms));
            let elapsed = then.map(|t| now.saturating_duration_since(t).as_millis());
            let (Some(busy), Some(elapsed)) = (busy, elapsed.and_then(|e| u64::try_from(e).ok())) else {
                continue;
            };
            if let Some(p) = percent(busy, elapsed)
                && best.as_ref().is_none_or(|b| p > b.percent)
            {
                best = Some(DiskUse {
                    device: name.to_owned(),
                    percent: p,
                });
            }
        }
        // Mappings and loop devices come and go.
        self.disks.retain(|_, known| known.look == look);
        best
    }
}

/// `major minor name reads … io_ticks …`: the thirteenth word is milliseconds spent doing IO.
fn parse(line: &[u8]) -> Option<(&str, u64)> {
    let mut words = words(line);
    let name = std::str::from_utf8(words.nth(2)?).ok()?;
    // A name is one path component: never follow anything else below /sys.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    Some((name, unsigned(words.nth(9)?)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_busiest_physical_disk_counts_partitions_and_loops_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(&roots.proc).unwrap();
        for disk in ["vda", "nvme0n1"] {
            fs::create_dir_all(roots.sys.join("block").join(disk).join("device")).unwrap();
        }
        fs::create_dir_all(roots.sys.join("block/loop0")).unwrap();
        let stats = |vda: u64, nvme: u64, others: u64| {
            let row = |name: &str, ms: u64| format!(" 254 0 {name} 1 2 3 4 5 6 7 8 0 {ms} 11 0 0 0 0 0 0\n");
            let text = row("loop0", others) + &row("vda", vda) + &row("vda1", others) + &row("nvme0n1", nvme);
            fs::write(roots.proc.join("diskstats"), text).unwrap();
        };
        let mut probe = DiskProbe::new(&roots);
        let start = Instant::now();
        stats(5000, 100, 0);
        assert_eq!(probe.busiest(start), None);
        stats(5100, 400, 9000);
        let now = start + Duration::from_secs(1);
        assert_eq!(
            probe.busiest(now),
            Some(DiskUse {
                device: "nvme0n1".into(),
                percent: 30
            })
        );
        stats(7000, 400, 9000);
        let now = now + Duration::from_secs(1);
        assert_eq!(
            probe.busiest(now),
            Some(DiskUse {
                device: "vda".into(),
                percent: 100
            })
        );
        // Counters wrapped: that device is unknown for one interval, the other is not.
        stats(3, 410, 9000);
        let now = now + Duration::from_secs(1);
        assert_eq!(
            probe.busiest(now),
            Some(DiskUse {
                device: "nvme0n1".into(),
                percent: 1
            })
        );
    }

    #[test]
    fn names_that_come_and_go_take_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(&roots.proc).unwrap();
        let mut probe = DiskProbe::new(&roots);
        for n in 0..100 {
            let row = format!(" 253 {n} dm-{n} 1 2 3 4 5 6 7 8 0 9 11 0 0 0 0 0 0\n");
            fs::write(roots.proc.join("diskstats"), row).unwrap();
            assert_eq!(probe.busiest(Instant::now()), None);
            assert_eq!(probe.disks.len(), 1);
        }
    }
}
