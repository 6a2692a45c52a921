//! Load averages, uptime and name of the host.

use super::Roots;
use super::source::{Source, fixed_point, words};

/// Reads `/proc/loadavg` and `/proc/uptime`.
#[derive(Debug)]
pub struct HostProbe {
    loadavg: Source,
    uptime: Source,
}

/// Load averages in units of 10⁻⁶.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Over one minute.
    pub one: u64,
    /// Over five minutes.
    pub five: u64,
    /// Over fifteen minutes.
    pub fifteen: u64,
}

/// Which system this is, as specification 002 names it: `linux`, `freebsd`, `dragonflybsd`.
#[must_use]
pub fn os_family() -> &'static str {
    match std::env::consts::OS {
        "dragonfly" => "dragonflybsd",
        os => os,
    }
}

impl HostProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            loadavg: Source::new(roots.proc.join("loadavg")),
            uptime: Source::new(roots.proc.join("uptime")),
        }
    }

    /// The three load averages.
    #[must_use]
    pub fn load(&mut self) -> Option<Load> {
        let mut words = words(self.loadavg.read_at_most(128).ok()?);
        let mut next = || fixed_point(words.next()?, 6);
        Some(Load {
            one: next()?,
            five: next()?,
            fifteen: next()?,
        })
    }

    /// Seconds since the host started.
    #[must_use]
    pub fn uptime(&mut self) -> Option<u64> {
        fixed_point(words(self.uptime.read_at_most(128).ok()?).next()?, 0)
    }
}

/// The host's name from `/proc/sys/kernel/hostname`.
#[must_use]
pub fn hostname(roots: &Roots) -> Option<String> {
    super::line(&roots.proc.join("sys/kernel/hostname"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_fixed_point_and_uptime_whole_seconds() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let mut probe = HostProbe::new(&roots);
        assert_eq!((probe.load(), probe.uptime()), (None, None));
        std::fs::write(roots.proc.join("loadavg"), "16.50 15.2 0.01 3/1200 99\n").unwrap();
        std::fs::write(roots.proc.join("uptime"), "2592000.99 1.00\n").unwrap();
        assert_eq!(
            probe.load(),
            Some(Load {
                one: 16_500_000,
                five: 15_200_000,
                fifteen: 10_000
            })
        );
        assert_eq!(probe.uptime(), Some(2_592_000));
    }
}
