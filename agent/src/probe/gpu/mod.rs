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
    silent: Option<String>,
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
            silent: None,
        }
    }

    /// Why NVML told nothing when it was asked last, with what helps; none if it did, or was never asked.
    #[must_use]
    pub fn silent(&self) -> Option<&str> {
        self.silent.as_deref()
    }

    /// All GPUs; none if they are not known, which is not the same as no GPU.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Option<GpuReport> {
        if self.config.enabled == Some(false) {
            return None;
        }
        let bus = self.bus.read(now);
        let nvidia = self.config.nvml_library.is_some() || bus.is_some_and(|b| b.nvidia > 0);
        if !nvidia && bus.is_none() {
            return None;
        }
        let amd = if bus.is_none_or(|b| b.amd > 0) {
            amd::read(&self.roots)
        } else {
            GpuReport::default()
        };
        if !nvidia {
            return Some(amd);
        }
        let mut all = match self.nvidia(now) {
            None if amd.gpus.is_empty() => return None,
            None => self.untold(now)?,
            Some(told) => told,
        };
        all.gpus.extend(amd.gpus);
        Some(all)
    }

    /// NVIDIA's of which nothing is told, so that they hide none of another maker: in the total, and not to be had. None if
    /// the bus has none of them: then their number is unknown.
    fn untold(&mut self, now: Instant) -> Option<GpuReport> {
        let why = self.silent.clone()?;
        let untold = |(pci, index)| Gpu {
            vendor: "nvidia".into(),
            index,
            pci: Some(pci),
            refused: Some(why.clone()),
            ..Gpu::default()
        };
        let gpus: Vec<Gpu> = self.bus.nvidia(now).into_iter().zip(0u32..).map(untold).collect();
        (!gpus.is_empty()).then_some(GpuReport { driver: None, gpus })
    }

    fn nvidia(&mut self, now: Instant) -> Option<GpuReport> {
        if self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let asked = Instant::now();
        match self.nvidia.read() {
            Ok(report) => {
                if self.silent.take().is_some() {
                    tracing::info!("NVML answers again");
                }
                self.pause = Duration::ZERO;
                self.not_before = None;
                Some(report)
            }
            Err(e) => {
                if self.silent.replace(e.why()).is_none() {
                    tracing::warn!("NVIDIA's GPUs are unknown: {e}");
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

    /// One of NVIDIA's.
    fn plug_in(roots: &Roots) {
        let device = roots.sys.join("bus/pci/devices/0000:1b:00.0");
        fs::create_dir(&device).unwrap();
        for (file, text) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
            fs::write(device.join(file), text).unwrap();
        }
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
        plug_in(&roots);
        assert_eq!((count(59), count(60)), (3, 4));
    }

    #[test]
    fn gpus_of_amd_are_measured_beside_one_of_nvidia_without_a_driver_which_is_in_the_total() {
        let (dir, roots) = recorded("amd-node");
        plug_in(&roots);
        let nvidia = program(dir.path(), "echo 'error: install its driver' >&2; exit 1");
        let mut probe = GpuProbe::new(GpuConfig::default(), &roots, Some(&nvidia));
        let start = Instant::now();
        // The second time it is not asked.
        for _ in 0..2 {
            let r = probe.read(start).unwrap();
            let without = Gpu {
                vendor: "nvidia".into(),
                pci: Some("0000:1b:00.0".into()),
                refused: Some("install its driver".into()),
                ..Gpu::default()
            };
            assert_eq!((r.gpus.len(), &r.gpus[0]), (4, &without));
            // One of AMD's is lost.
            assert_eq!((r.working().count(), r.utilization()), (2, Some(49)));
        }
        program(
            dir.path(),
            r#"echo '{"driver":"550.54","gpus":[{"vendor":"nvidia","index":0}]}'"#,
        );
        let r = probe.read(start + Duration::from_secs(12)).unwrap();
        assert_eq!((r.working().count(), probe.silent()), (3, None));
    }

    #[test]
    fn how_many_there_are_on_no_bus_is_unknown_while_nvml_is_silent() {
        let (dir, roots) = recorded("amd-node");
        let nvidia = program(dir.path(), "exit 1");
        let config = GpuConfig {
            enabled: None,
            nvml_library: Some("/opt/libnvidia-ml.so".into()),
        };
        let mut probe = GpuProbe::new(config, &roots, Some(&nvidia));
        assert_eq!(probe.read(Instant::now()), None);
        assert!(probe.silent().unwrap().contains("exit status: 1"));
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
