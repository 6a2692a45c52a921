//! The hottest CPU sensor: hwmon, else a thermal zone.

use std::path::PathBuf;

use super::source::Source;
use super::{Roots, line, names_in};

/// hwmon drivers that measure the CPU.
const CPU_CHIPS: [&str; 8] = [
    "coretemp",
    "k10temp",
    "zenpower",
    "k8temp",
    "cpu_thermal",
    "cpu-thermal",
    "via_cputemp",
    "scpi_sensors",
];
/// Thermal zone types that measure the CPU.
const CPU_ZONES: [&str; 5] = [
    "x86_pkg_temp",
    "cpu-thermal",
    "cpu_thermal",
    "soc_thermal",
    "acpitz",
];

/// Every so many looks the sensors are looked for anew: the driver of a better one may have been loaded since.
const AFRESH: u32 = 16;

/// Finds the sensors and keeps them open; looks again now and then, and when all of them have gone.
#[derive(Debug)]
pub struct TemperatureProbe {
    sys: PathBuf,
    sensors: Option<Vec<Source>>,
    looks: u32,
}

impl TemperatureProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            sys: roots.sys.clone(),
            sensors: None,
            looks: 0,
        }
    }

    /// Degrees Celsius of the hottest CPU sensor, rounded; none without a sensor.
    #[must_use]
    pub fn cpu(&mut self) -> Option<i32> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(AFRESH) {
            self.sensors = None;
        }
        let hottest = self
            .sensors
            .get_or_insert_with(|| find(&self.sys))
            .iter_mut()
            .filter_map(Source::number)
            // Drivers answer absurd values for sensors that are not connected.
            .filter(|milli| (-60_000..=250_000).contains(milli))
            .max();
        if hottest.is_none() {
            self.sensors = None;
        }
        i32::try_from(hottest?.saturating_add(500).div_euclid(1000)).ok()
    }
}

fn find(sys: &std::path::Path) -> Vec<Source> {
    let hwmon = sys.join("class/hwmon");
    let mut found = Vec::new();
    for chip in names_in(&hwmon).iter().map(|n| hwmon.join(n)) {
        if line(&chip.join("name")).is_some_and(|n| CPU_CHIPS.contains(&n.as_str())) {
            found.extend(
                names_in(&chip)
                    .iter()
                    .filter(|f| f.starts_with("temp") && f.ends_with("_input"))
                    .map(|f| Source::new(chip.join(f))),
            );
        }
    }
    if !found.is_empty() {
        return found;
    }
    let thermal = sys.join("class/thermal");
    let zones: Vec<(PathBuf, String)> = names_in(&thermal)
        .iter()
        .filter(|n| n.starts_with("thermal_zone"))
        .map(|zone| thermal.join(zone))
        .filter_map(|dir| Some((dir.join("temp"), line(&dir.join("type"))?)))
        .collect();
    // The most telling type alone: acpitz is often the chassis.
    let of = |wanted: &str| -> Vec<Source> {
        let those = zones.iter().filter(|(_, kind)| kind == wanted);
        those.map(|(path, _)| Source::new(path.clone())).collect()
    };
    let found = CPU_ZONES.into_iter().map(of).find(|found| !found.is_empty());
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_hottest_cpu_sensor_counts_other_chips_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let mut probe = TemperatureProbe::new(&roots);
        assert_eq!(probe.cpu(), None);
        let zone = roots.sys.join("class/thermal/thermal_zone0");
        put(&zone.join("type"), "acpitz\n");
        put(&zone.join("temp"), "27800\n");
        assert_eq!(probe.cpu(), Some(28));
        let hwmon = roots.sys.join("class/hwmon");
        put(&hwmon.join("hwmon0/name"), "nvme\n");
        put(&hwmon.join("hwmon0/temp1_input"), "90000\n");
        put(&hwmon.join("hwmon1/name"), "coretemp\n");
        put(&hwmon.join("hwmon1/temp1_input"), "61500\n");
        put(&hwmon.join("hwmon1/temp2_input"), "58000\n");
        put(&hwmon.join("hwmon1/temp3_input"), "-273000\n");
        put(&hwmon.join("hwmon1/temp1_max"), "100000\n");
        // The processor's own driver is loaded after the first look.
        let seen: Vec<_> = (0..AFRESH).map(|_| probe.cpu()).collect();
        assert_eq!((seen.first(), seen.last()), (Some(&Some(28)), Some(&Some(62))));
        let mut probe = TemperatureProbe::new(&roots);
        assert_eq!(probe.cpu(), Some(62));
        fs::remove_dir_all(hwmon.join("hwmon1")).unwrap();
        // Still open files go on giving their last content here; a gone driver gives an error, and we look again.
        probe.sensors = Some(vec![Source::new(hwmon.join("hwmon1/temp1_input"))]);
        assert_eq!((probe.cpu(), probe.cpu()), (None, Some(28)));
    }
}
