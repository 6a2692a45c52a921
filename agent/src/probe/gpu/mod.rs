//! GPUs: NVIDIA's by NVML in a short-lived child process, AMD's by the driver's files.

mod amd;
mod child;
mod nvml;
mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use child::{COMMAND, NvidiaError, NvidiaProbe, report};
pub use report::{Gpu, GpuReport, Links, POWER_CAP, Remapped};

use super::{Roots, pci};

/// While NVML gives errors it is asked less often, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// What the administrator says of GPUs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GpuConfig {
    /// Whether to look for GPUs; none: if the PCI bus has some.
    pub enabled: Option<bool>,
    /// Another NVML library than the driver's; NVML is asked even where the PCI bus shows no GPU.
    pub nvml_library: Option<PathBuf>,
}

/// Asks the drivers.
#[derive(Debug)]
pub struct GpuProbe {
    config: GpuConfig,
    roots: Roots,
    nvidia: NvidiaProbe,
    bus: pci::Bus,
    pause: Duration,
    not_before: Option<Instant>,
    said: bool,
}

impl GpuProbe {
    /// Nothing is asked yet. `program`: this executable, unless it is the running one.
    #[must_use]
    pub fn new(config: GpuConfig, roots: &Roots, program: Option<&Path>) -> Self {
        Self {
            nvidia: NvidiaProbe::new(program, config.nvml_library.clone()),
            config,
            roots: roots.clone(),
            bus: pci::Bus::new(roots),
            pause: Duration::ZERO,
            not_before: None,
            said: false,
        }
    }

    /// All GPUs; none if they are not known, which is not the same as no GPU.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Option<GpuReport> {
        if self.config.enabled == Some(false) {
            return None;
        }
        let bus = self.bus.read(now);
        let nvidia = self.config.nvml_library.is_some() || bus.is_some_and(|b| b.nvidia > 0);
        let mut all = GpuReport::default();
        if nvidia {
            all = self.nvidia(now)?;
        } else if bus.is_none() {
            return None;
        }
        if bus.is_none_or(|b| b.amd > 0) {
            all.gpus.extend(amd::read(&self.roots).gpus);
        }
        Some(all)
    }

    fn nvidia(&mut self, now: Instant) -> Option<GpuReport> {
        if self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let asked = Instant::now();
        match self.nvidia.read() {
            Ok(report) => {
                if std::mem::take(&mut self.said) {
                    tracing::info!("NVML answers again");
                }
                self.pause = Duration::ZERO;
                self.not_before = None;
                Some(report)
            }
            Err(e) => {
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!("GPUs are unknown: {e}");
                }
                self.pause = self
                    .pause
                    .saturating_mul(2)
                    .clamp(Duration::from_secs(10), LONGEST_PAUSE);
                // From the end of a long wait, not from its beginning.
                self.not_before = now.checked_add(asked.elapsed().saturating_add(self.pause));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::probe::recorded;

    /// Stands for this executable.
    fn program(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("agent");
        crate::stand_in::stand_in(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    }

    #[test]
    fn the_child_is_started_only_where_there_is_an_nvidia_gpu() {
        let (dir, roots) = recorded("amd-node");
        let nvidia = program(dir.path(), "echo x >> \"$0.called\"; exit 1");
        let r = GpuProbe::new(GpuConfig::default(), &roots, Some(&nvidia))
            .read(Instant::now())
            .unwrap();
        assert_eq!(r.gpus.len(), 3);
        assert!(!dir.path().join("agent.called").exists());
        let off = GpuConfig {
            enabled: Some(false),
            nvml_library: None,
        };
        assert_eq!(GpuProbe::new(off, &roots, None).read(Instant::now()), None);
    }

    #[test]
    fn the_first_nvidia_gpu_of_a_node_is_asked_for_within_a_minute_of_its_coming() {
        let (dir, roots) = recorded("amd-node");
        let says = r#"echo '{"driver":"550.54","gpus":[{"vendor":"nvidia","index":0}]}'"#;
        let nvidia = program(dir.path(), says);
        let mut probe = GpuProbe::new(GpuConfig::default(), &roots, Some(&nvidia));
        let start = Instant::now();
        let mut count = |seconds| {
            let report = probe.read(start + Duration::from_secs(seconds));
            report.unwrap().gpus.len()
        };
        assert_eq!(count(0), 3);
        let device = roots.sys.join("bus/pci/devices/0000:1b:00.0");
        fs::create_dir(&device).unwrap();
        for (file, text) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
            fs::write(device.join(file), text).unwrap();
        }
        assert_eq!((count(59), count(60)), (3, 4));
    }

    #[test]
    fn gpus_whose_driver_does_not_answer_are_unknown_and_it_is_asked_less_often() {
        let (dir, roots) = recorded("gpu-node");
        let failing = program(
            dir.path(),
            "echo x >> \"$0.called\"; echo 'driver/library mismatch' >&2; exit 1",
        );
        let mut probe = GpuProbe::new(GpuConfig::default(), &roots, Some(&failing));
        let now = Instant::now();
        assert_eq!((probe.read(now), probe.read(now)), (None, None));
        assert_eq!(
            fs::read_to_string(dir.path().join("agent.called"))
                .unwrap()
                .lines()
                .count(),
            1
        );
        program(
            dir.path(),
            r#"[ "$*" = probe-gpu ] && echo '{"driver":"550.54","gpus":[{"vendor":"nvidia","index":0}]}'"#,
        );
        let r = probe.read(now + Duration::from_secs(12)).unwrap();
        assert_eq!((r.driver.as_deref(), r.gpus.len()), (Some("550.54"), 1));
    }

    #[test]
    fn an_unreadable_bus_is_not_a_machine_without_gpus() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        assert_eq!(
            GpuProbe::new(GpuConfig::default(), &roots, None).read(Instant::now()),
            None
        );
        fs::create_dir_all(roots.sys.join("bus")).unwrap();
        let none = GpuProbe::new(GpuConfig::default(), &roots, None).read(Instant::now());
        assert_eq!(none, Some(GpuReport::default()));
    }
}
