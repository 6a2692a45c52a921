//! Power of CPU packages and memory by RAPL: `/sys/class/powercap/intel-rapl:*` (AMD's processors use that name too).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::number;
use crate::probe::{Roots, line, names_in};

/// Mean power of one domain since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// `package-0`, `package-0 dram`, `psys`.
    pub name: String,
    /// Milliwatts.
    pub milliwatts: u64,
}

/// Keeps the counters of the last look. The kernel shows them to root only, unless udev (`deploy/udev`)
/// gives them to our group; without, there is nothing.
#[derive(Debug)]
pub struct EnergyProbe {
    class: PathBuf,
    before: BTreeMap<String, (u64, Instant)>,
}

impl EnergyProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            class: roots.sys.join("class/powercap"),
            before: BTreeMap::new(),
        }
    }

    /// Empty on the first look and where the counters cannot be read.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Vec<Domain> {
        let mut domains = Vec::new();
        for zone in names_in(&self.class)
            .iter()
            .filter(|n| n.starts_with("intel-rapl:"))
        {
            let dir = self.class.join(zone);
            let Some(energy) = micro(&dir.join("energy_uj")) else {
                continue;
            };
            let Some((then, at)) = self.before.insert(zone.clone(), (energy, now)) else {
                continue;
            };
            let spent = match energy.checked_sub(then) {
                Some(spent) => Some(spent),
                // The counter wraps at its range within minutes of full load.
                None => micro(&dir.join("max_energy_range_uj"))
                    .and_then(|range| range.checked_sub(then)?.checked_add(energy)),
            };
            let elapsed = now.saturating_duration_since(at).as_micros();
            // µJ / µs = W.
            let milliwatts = spent.and_then(|s| u128::from(s).saturating_mul(1000).checked_div(elapsed));
            if let Some(milliwatts) = milliwatts.and_then(|w| u64::try_from(w).ok()) {
                domains.push(Domain {
                    name: self.name(zone),
                    milliwatts,
                });
            }
        }
        domains
    }

    /// `intel-rapl:0:1` is named after its package too.
    fn name(&self, zone: &str) -> String {
        let own = |zone: &str| line(&self.class.join(zone).join("name")).unwrap_or_else(|| zone.to_owned());
        match zone.rsplit_once(':') {
            Some((parent, _)) if parent.contains(':') => format!("{} {}", own(parent), own(zone)),
            _ => own(zone),
        }
    }
}

fn micro(path: &Path) -> Option<u64> {
    number(path).and_then(|n| u64::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::probe::recorded;

    #[test]
    fn power_is_energy_over_time_and_survives_the_wrap_of_the_counter() {
        let (_dir, roots) = recorded("gpu-node");
        let mut probe = EnergyProbe::new(&roots);
        let start = Instant::now();
        assert!(probe.read(start).is_empty());
        let zone = |name: &str| roots.sys.join("class/powercap").join(name).join("energy_uj");
        let add = |name: &str, micro: u64| {
            let before: u64 = fs::read_to_string(zone(name)).unwrap().trim().parse().unwrap();
            fs::write(zone(name), format!("{}\n", before + micro)).unwrap();
        };
        add("intel-rapl:0", 3_500_000_000);
        add("intel-rapl:0:0", 250_000_000);
        // 262143328850 µJ is the range: 100 J short of it, then 200 J after the wrap.
        fs::write(zone("intel-rapl:1"), "200000000\n").unwrap();
        let watts: Vec<(String, u64)> = probe
            .read(start + Duration::from_secs(10))
            .into_iter()
            .map(|d| (d.name, d.milliwatts))
            .collect();
        assert_eq!(
            watts,
            [
                ("package-0".to_owned(), 350_000),
                ("package-0 dram".to_owned(), 25_000),
                ("package-1".to_owned(), 30_000)
            ]
        );
    }
}
