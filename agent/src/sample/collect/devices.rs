use std::time::{Duration, Instant};

use super::{Collector, Reading};
use crate::clock::unix_seconds;
use crate::probe::gpu::{GpuConfig, GpuProbe};
use crate::probe::hardware::energy::EnergyProbe;
use crate::probe::hardware::fabric::FabricProbe;
use crate::probe::hardware::infiniband::InfinibandProbe;
use crate::probe::hardware::{memory_errors, sensors};
use crate::probe::kept::Kept;
use crate::probe::temperature::TemperatureProbe;
use crate::probe::{Roots, pci};
use crate::sample::Category;

/// What is plugged in; nothing is said of GPUs that the administrator keeps from us.
pub(super) struct Bus {
    bus: pci::Bus,
    enabled: bool,
}

impl Bus {
    pub(super) fn new(config: &GpuConfig, roots: &Roots, kept: Kept) -> Self {
        Self {
            bus: pci::Bus::new(roots).remembering(kept),
            enabled: config.enabled != Some(false),
        }
    }
}

impl Collector for Bus {
    fn name(&self) -> &'static str {
        "bus"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        let gpus = self.enabled.then(|| self.bus.read(now)).flatten();
        vec![Reading::PciGpus(gpus)]
    }
}

/// Traffic by RDMA. Alone: an adapter's firmware answers.
pub(super) struct Fabric(FabricProbe);

impl Fabric {
    pub(super) fn new(roots: &Roots) -> Self {
        Self(FabricProbe::new(roots))
    }
}

impl Collector for Fabric {
    fn name(&self) -> &'static str {
        "fabric"
    }
    fn category(&self) -> Category {
        Category::Utilization
    }
    fn goes_on(&self) -> Option<&'static str> {
        Some("fabric")
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Fabric(self.0.busiest(now))]
    }
}

/// Alone: sensors answer over slow buses.
pub(super) struct Temperature(TemperatureProbe);

impl Temperature {
    pub(super) fn new(roots: &Roots) -> Self {
        Self(TemperatureProbe::new(roots))
    }
}

impl Collector for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }
    fn category(&self) -> Category {
        Category::Temperature
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![Reading::Temperature(self.0.cpu())]
    }
}

/// Every sensor. Alone: some are asked through the board's management controller.
pub(super) struct Sensors(Roots);

impl Sensors {
    pub(super) fn new(roots: &Roots) -> Self {
        Self(roots.clone())
    }
}

impl Collector for Sensors {
    fn name(&self) -> &'static str {
        "sensors"
    }
    fn category(&self) -> Category {
        Category::Temperature
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![Reading::Sensors(sensors::read(&self.0))]
    }
}

/// What the processor and the kernel count themselves: energy, errors of memory.
pub(super) struct Counters {
    roots: Roots,
    energy: EnergyProbe,
}

impl Counters {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            roots: roots.clone(),
            energy: EnergyProbe::new(roots),
        }
    }
}

impl Collector for Counters {
    fn name(&self) -> &'static str {
        "counters"
    }
    fn category(&self) -> Category {
        Category::Temperature
    }
    fn goes_on(&self) -> Option<&'static str> {
        Some("counters")
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![
            Reading::Power(self.energy.read(now)),
            Reading::MemoryErrors(memory_errors::read(&self.roots)),
        ]
    }
}

/// InfiniBand ports. Alone: an adapter's firmware answers.
pub(super) struct Ports(InfinibandProbe);

impl Ports {
    pub(super) fn new(roots: &Roots, kept: Kept) -> Self {
        Self(InfinibandProbe::new(roots, kept))
    }
}

impl Collector for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }
    fn category(&self) -> Category {
        Category::Temperature
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Ports(self.0.read(now, unix_seconds()))]
    }
}

/// GPUs, by their drivers; nothing is started where there is none.
pub(super) struct Gpus(GpuProbe);

impl Gpus {
    pub(super) fn new(config: &GpuConfig, roots: &Roots) -> Self {
        Self(GpuProbe::new(config.clone(), roots, None))
    }
}

impl Collector for Gpus {
    fn name(&self) -> &'static str {
        "gpus"
    }
    fn category(&self) -> Category {
        Category::Gpu
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(12)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        let report = self.0.read(now);
        let silent = self.0.silent().map(str::to_owned);
        vec![Reading::Gpus(report), Reading::NvmlSilent(silent)]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::probe::recorded;

    /// Takes what its driver makes out of the tree; puts it back.
    fn drivers(roots: &Roots, aside: &Path, classes: &[&str], there: bool) {
        for class in classes {
            let (in_tree, aside) = (roots.sys.join("class").join(class), aside.join(class));
            let (from, to) = if there { (aside, in_tree) } else { (in_tree, aside) };
            fs::rename(from, to).unwrap();
        }
    }

    #[test]
    fn adapters_and_sensors_whose_drivers_come_after_the_start_are_measured() {
        let (dir, roots) = recorded("gpu-node");
        let (aside, classes) = (tempfile::tempdir_in(dir.path()).unwrap(), ["infiniband", "hwmon"]);
        drivers(&roots, aside.path(), &classes, false);
        let mut fabric = Fabric::new(&roots);
        let mut sensors = Sensors::new(&roots);
        let mut ports = Ports::new(&roots, Kept::from(dir.path().join("ports.json")));
        let mut temperature = Temperature::new(&roots);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut instruments = |now| match (&sensors.collect(now)[..], &ports.collect(now)[..]) {
            ([Reading::Sensors(s)], [Reading::Ports(p)]) => (s.len(), p.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(fabric.collect(at(0)), [Reading::Fabric(None)]);
        assert_eq!(instruments(at(0)), (0, 0));
        assert_eq!(temperature.collect(at(0)), [Reading::Temperature(None)]);

        drivers(&roots, aside.path(), &classes, true);
        assert_eq!(instruments(at(60)), (6, 9));
        assert_eq!(temperature.collect(at(60)), [Reading::Temperature(Some(63))]);
        assert_eq!(fabric.collect(at(60)), [Reading::Fabric(None)], "the first look");
        let counter = roots
            .sys
            .join("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data");
        let words: u64 = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        // 100 GB in 10 s of 400 Gbit/s = 20 %.
        fs::write(&counter, format!("{}\n", words + 25_000_000_000)).unwrap();
        let busiest = fabric.collect(at(70));
        assert!(
            matches!(&busiest[..], [Reading::Fabric(Some(n))] if (n.device.as_str(), n.percent) == ("mlx5_0/1", 20)),
            "{busiest:?}"
        );
    }
}
