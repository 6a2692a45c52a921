//! Pressure stall information: the share of time in which tasks waited for CPU, memory or IO.

use super::Roots;
use super::source::{Source, fixed_point, lines, words};

/// Reads `/proc/pressure/{cpu,memory,io}`.
#[derive(Debug)]
pub struct PressureProbe {
    files: [(&'static str, Source); 3],
}

/// Percent of the last 60 seconds, in units of 0.01.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// `cpu`, `memory` or `io`.
    pub resource: &'static str,
    /// At least one task waited.
    pub some: u64,
    /// All tasks waited at once; the kernel does not say it of the CPU on old versions.
    pub full: Option<u64>,
}

impl PressureProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        let file = |name| (name, Source::new(roots.proc.join("pressure").join(name)));
        Self {
            files: [file("cpu"), file("memory"), file("io")],
        }
    }

    /// What the kernel offers; empty without PSI.
    #[must_use]
    pub fn read(&mut self) -> Vec<Pressure> {
        self.files
            .iter_mut()
            .filter_map(|(resource, source)| {
                let text = source.read_at_most(512).ok()?;
                Some(Pressure {
                    resource,
                    some: average(text, b"some")?,
                    full: average(text, b"full"),
                })
            })
            .collect()
    }
}

/// `some avg10=0.77 avg60=10.91 avg300=33.83 total=265132949`
fn average(text: &[u8], kind: &[u8]) -> Option<u64> {
    let line = lines(text).find(|l| words(l).next() == Some(kind))?;
    fixed_point(words(line).find_map(|w| w.strip_prefix(b"avg60="))?, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minute_average_is_read_in_hundredths() {
        let text = b"some avg10=0.77 avg60=10.91 avg300=33.83 total=1\nfull avg10=0.00 avg60=0.50 avg300=0.00 total=0\n";
        assert_eq!(
            (average(text, b"some"), average(text, b"full")),
            (Some(1091), Some(50))
        );
        assert_eq!(average(b"some\n", b"some"), None);
    }
}
