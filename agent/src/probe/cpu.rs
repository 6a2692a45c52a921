//! Processors: how many are online, and how busy they were since the last look.

use super::source::{Source, lines, unsigned, words};
use super::{Roots, percent};

/// Reads `/sys/devices/system/cpu/online` and the first line of `/proc/stat`.
#[derive(Debug)]
pub struct CpuProbe {
    online: Source,
    stat: Source,
    before: Option<Ticks>,
}

/// Cumulative time of all processors in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    total: u64,
}

impl CpuProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            online: Source::new(roots.sys.join("devices/system/cpu/online")),
            stat: Source::new(roots.proc.join("stat")),
            before: None,
        }
    }

    /// Logical processors online. Falls back to counting `cpuN` lines of `/proc/stat`.
    #[must_use]
    pub fn cores(&mut self) -> Option<u32> {
        let from_sys = self.online.read().ok().and_then(|t| count_list(t.trim_ascii()));
        from_sys.or_else(|| {
            let text = self.stat.read().ok()?;
            let n = lines(text).filter(|l| is_cpu_line(l)).count();
            u32::try_from(n).ok().filter(|n| *n > 0)
        })
    }

    /// Percent busy since the last call; none on the first, after counters went back, or within one tick.
    #[must_use]
    pub fn utilization(&mut self) -> Option<u8> {
        let now = self.stat.read_at_most(512).ok().and_then(parse_total);
        let before = std::mem::replace(&mut self.before, now);
        let (now, before) = (now?, before?);
        percent(
            now.busy.checked_sub(before.busy)?,
            now.total.checked_sub(before.total)?,
        )
    }
}

fn is_cpu_line(line: &[u8]) -> bool {
    line.strip_prefix(b"cpu")
        .and_then(<[u8]>::first)
        .is_some_and(u8::is_ascii_digit)
}

/// `0-3,8,10-11` → 7.
fn count_list(list: &[u8]) -> Option<u32> {
    let mut count = 0u32;
    for range in list.split(|b| *b == b',') {
        let mut ends = range.splitn(2, |b| *b == b'-');
        let first = unsigned(ends.next()?)?;
        let last = ends.next().map_or(Some(first), unsigned)?;
        let n = last.checked_sub(first)?.checked_add(1)?;
        count = count.checked_add(u32::try_from(n).ok()?)?;
    }
    Some(count)
}

/// The line `cpu  user nice system idle iowait irq softirq steal guest guest_nice`: guest time is contained in user
/// and nice. Idle is idle + iowait; what the hypervisor took (steal) was not ours to use and counts as busy.
fn parse_total(text: &[u8]) -> Option<Ticks> {
    let line = lines(text).next()?.strip_prefix(b"cpu ")?;
    let mut total = 0u64;
    let mut idle = 0u64;
    for (i, word) in words(line).take(8).enumerate() {
        let ticks = unsigned(word)?;
        total = total.saturating_add(ticks);
        if i == 3 || i == 4 {
            idle = idle.saturating_add(ticks);
        }
    }
    Some(Ticks {
        busy: total.saturating_sub(idle),
        total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn online_lists_are_counted() {
        assert_eq!(count_list(b"0-1"), Some(2));
        assert_eq!(count_list(b"0-3,8,10-11"), Some(7));
        assert_eq!(count_list(b"0"), Some(1));
        for bad in [&b""[..], b"3-0", b"a", b"0-"] {
            assert_eq!(count_list(bad), None);
        }
    }

    #[test]
    fn utilisation_is_that_of_the_interval_not_since_boot() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let stat = |line: &str| std::fs::write(roots.proc.join("stat"), format!("{line}\ncpu0 1\n")).unwrap();
        let mut probe = CpuProbe::new(&roots);
        stat("cpu  900000 0 0 100000 0 0 0 0 0 0");
        assert_eq!(probe.utilization(), None);
        // 100 ticks later, 25 of them busy, 10 waiting for the disk.
        stat("cpu  900020 0 5 100065 10 0 0 0 0 0");
        assert_eq!(probe.utilization(), Some(25));
        // Nothing moved: not even idle, so nothing is known.
        assert_eq!(probe.utilization(), None);
        stat("cpu  900120 0 5 100065 10 0 0 0 0 0");
        assert_eq!(probe.utilization(), Some(100));
        // Counters went back (a container was moved): unknown, then measured from there.
        stat("cpu  10 0 0 10 0 0 0 0 0 0");
        assert_eq!(probe.utilization(), None);
        stat("cpu  20 0 0 20 0 0 0 0 0 0");
        assert_eq!(probe.utilization(), Some(50));
    }
}
