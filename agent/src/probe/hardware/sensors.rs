//! Every sensor that the kernel knows: `/sys/class/hwmon`.

use std::path::{Path, PathBuf};

use super::number;
use crate::probe::{Roots, line, names_in};

/// What a sensor measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Millidegrees Celsius.
    Temperature,
    /// Revolutions per minute.
    Fan,
    /// Microwatts.
    Power,
    /// Millivolts.
    Voltage,
    /// Milliamperes.
    Current,
}

impl Kind {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Temperature, "temp", "m°C"),
        (Self::Fan, "fan", "rpm"),
        (Self::Power, "power", "µW"),
        (Self::Voltage, "in", "mV"),
        (Self::Current, "curr", "mA"),
    ];

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(k, ..)| *k == self)
            .map_or("", |(.., unit)| unit)
    }
}

/// One reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// Chip, such as `coretemp`; with the device's place where there are several.
    pub chip: String,
    /// Label, such as `Package id 0`; else `temp1`.
    pub label: String,
    /// What it measures, in which unit.
    pub kind: Kind,
    /// The reading.
    pub value: i64,
    /// Where the maker draws the line (`…_crit`); none if it does not say, or says something absurd.
    pub critical: Option<i64>,
}

/// More sensors than any machine has.
const MOST: usize = 512;

/// Reads all of them.
#[must_use]
pub fn read(roots: &Roots) -> Vec<Sensor> {
    let class = roots.sys.join("class/hwmon");
    let chips: Vec<(PathBuf, String)> = names_in(&class)
        .iter()
        .map(|n| class.join(n))
        .filter_map(|dir| Some((dir.clone(), line(&dir.join("name"))?)))
        .collect();
    let mut sensors = Vec::new();
    for (dir, name) in &chips {
        let twins = chips.iter().filter(|(_, n)| n == name).count();
        let chip = match (twins, place(dir)) {
            (2.., Some(place)) => format!("{name} {place}"),
            _ => name.clone(),
        };
        sensors.extend(in_chip(dir, &chip));
        if sensors.len() >= MOST {
            sensors.truncate(MOST);
            break;
        }
    }
    sensors
}

fn in_chip(dir: &Path, chip: &str) -> Vec<Sensor> {
    let names = names_in(dir);
    names
        .iter()
        .filter_map(|file| {
            let base = file
                .strip_suffix("_input")
                .or_else(|| file.strip_suffix("_average"))?;
            // Both are there on some: the average says more.
            if file.ends_with("_input") && names.binary_search(&format!("{base}_average")).is_ok() {
                return None;
            }
            let (kind, ..) = Kind::ALL.iter().find(|(_, prefix, _)| {
                base.strip_prefix(prefix)
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            })?;
            Some(Sensor {
                chip: chip.to_owned(),
                label: line(&dir.join(format!("{base}_label"))).unwrap_or_else(|| base.to_owned()),
                kind: *kind,
                value: number(&dir.join(file)).filter(|v| plausible(*kind, *v))?,
                critical: number(&dir.join(format!("{base}_crit")))
                    .filter(|v| *v > 0 && plausible(*kind, *v)),
            })
        })
        .collect()
}

/// Drivers answer absurd values for sensors that are not connected.
fn plausible(kind: Kind, value: i64) -> bool {
    match kind {
        Kind::Temperature => (-60_000..=250_000).contains(&value),
        Kind::Fan => (0..=100_000).contains(&value),
        Kind::Power => (0..=100_000_000_000).contains(&value),
        Kind::Voltage | Kind::Current => (-10_000_000..=10_000_000).contains(&value),
    }
}

/// The device behind the chip: the last part of where the link leads, such as `coretemp.1` or `0000:01:00.0`.
fn place(dir: &Path) -> Option<String> {
    let target = std::fs::read_link(dir.join("device")).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::recorded;

    #[test]
    fn a_recorded_node_has_its_sensors_with_labels_and_limits() {
        let (_dir, roots) = recorded("gpu-node");
        let all = read(&roots);
        let find = |chip: &str, label: &str| all.iter().find(|s| s.chip == chip && s.label == label).cloned();
        let package = find("coretemp coretemp.1", "Package id 1").unwrap();
        assert_eq!(
            (package.kind, package.value, package.critical),
            (Kind::Temperature, 63_000, Some(100_000))
        );
        assert_eq!(find("nvme", "Composite").unwrap().value, 41_850);
        let power = find("power_meter", "power1").unwrap();
        assert_eq!(
            (power.kind, power.value, power.kind.unit()),
            (Kind::Power, 5_420_000_000, "µW")
        );
        assert!(
            find("coretemp coretemp.0", "Core 9").is_none(),
            "-273 °C is no reading"
        );
        assert_eq!(all.len(), 6);
        assert!(read(&Roots::below(Path::new("/no/such"))).is_empty());
    }
}
