//! `diag.health_probe`: what can be seen of the host without changing or waking anything.

use std::fs;
use std::path::Path;

use hpc_schema::task::{CheckResult, CheckStatus, HealthCheck, HealthProbed, Params};
use serde_json::Value;

use crate::files::read_text;
use crate::probe::Roots;
use crate::task::news::Probed;
use crate::task::{Context, Failure, Handler, Recovery};

/// Less memory than this is no node to work on.
const LOW_MIB: u64 = 512;
const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";

/// Stands after the state of a port that was never up.
const UNUSED: &str = " (never up)";

pub(super) struct HealthProbe;

impl Handler for HealthProbe {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::HealthProbe(params) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        context.phase("probe")?;
        let host = context.host();
        let whole = params.checks.is_none();
        let probed = probe(&host.roots, params.checks.clone());
        if whole {
            Probed::of(&probed, host.clock.seconds()).save(&host.dir);
        }
        serde_json::to_value(probed).map_err(Failure::failed)
    }
}

/// Looks at this host; all checks if none are named.
#[must_use]
pub fn probe(roots: &Roots, checks: Option<Vec<HealthCheck>>) -> HealthProbed {
    let wanted = checks.unwrap_or_else(|| HealthCheck::ALL.to_vec());
    let seen = Seen::look(roots);
    let checks: Vec<CheckResult> = wanted.into_iter().map(|c| seen.check(c)).collect();
    let status = worst(&checks);
    HealthProbed {
        status,
        checks,
        kernel_version: seen.kernel,
        memory_available_mib: seen.memory,
        kvm_present: seen.kvm,
        vfio_loaded: seen.vfio,
        gpus: seen.gpus.into_iter().map(|(address, _)| address).collect(),
        fabric_links: seen.links,
    }
}

fn worst(checks: &[CheckResult]) -> CheckStatus {
    let any = |status| checks.iter().any(|c| c.status == status);
    if any(CheckStatus::Fail) {
        CheckStatus::Fail
    } else if any(CheckStatus::Warn) {
        CheckStatus::Warn
    } else {
        CheckStatus::Pass
    }
}

struct Seen {
    kernel: Option<String>,
    memory: Option<u64>,
    kvm: bool,
    vfio: bool,
    /// Address, and the driver that has it.
    gpus: Vec<(String, Option<String>)>,
    /// `device/port state`.
    links: Vec<String>,
}

impl Seen {
    fn look(roots: &Roots) -> Self {
        let text = |path: &Path| read_text(path, 1 << 20).ok();
        let release = roots.proc.join("sys/kernel/osrelease");
        let memory = text(&roots.proc.join("meminfo")).and_then(|all| {
            let line = all.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
            let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
            kib.checked_div(1024)
        });
        Self {
            kernel: text(&release)
                .map(|t| t.trim().to_owned())
                .filter(|t| !t.is_empty()),
            memory,
            kvm: roots.dev.join("kvm").exists(),
            vfio: roots.sys.join("bus/pci/drivers/vfio-pci").is_dir(),
            gpus: gpus(&roots.sys),
            links: links(&roots.sys),
        }
    }

    fn check(&self, check: HealthCheck) -> CheckResult {
        use CheckStatus::{Absent, Fail, Pass, Warn};
        let (status, detail) = match check {
            HealthCheck::Kernel => match &self.kernel {
                Some(release) => (Pass, release.clone()),
                None => (Warn, "the kernel's version cannot be read".to_owned()),
            },
            HealthCheck::Memory => match self.memory {
                Some(mib) if mib < LOW_MIB => (Fail, format!("{mib} MiB are left")),
                Some(mib) => (Pass, format!("{mib} MiB are left")),
                None => (Warn, "free memory cannot be read".to_owned()),
            },
            HealthCheck::Kvm if self.kvm => (Pass, "/dev/kvm is there".to_owned()),
            HealthCheck::Kvm => (Absent, "there is no /dev/kvm".to_owned()),
            HealthCheck::Vfio if self.vfio => (Pass, "vfio-pci is there".to_owned()),
            HealthCheck::Vfio => (Absent, "vfio-pci is not loaded".to_owned()),
            HealthCheck::Gpu => self.gpu(),
            HealthCheck::Fabric if self.links.is_empty() => (Absent, "there is no fabric".to_owned()),
            HealthCheck::Fabric => {
                let up = self.links.iter().filter(|l| l.ends_with("ACTIVE")).count();
                // Beside one that is up, nobody misses a port that was never used.
                let missed = |l: &&str| !l.ends_with("ACTIVE") && (up == 0 || !l.ends_with(UNUSED));
                let links = self.links.iter().map(String::as_str);
                let down: Vec<&str> = links.filter(missed).collect();
                match down.as_slice() {
                    [] => (Pass, format!("{up} ports are up")),
                    down => (Fail, down.join(", ")),
                }
            }
        };
        CheckResult {
            check,
            status,
            detail,
        }
    }

    fn gpu(&self) -> (CheckStatus, String) {
        let without: Vec<&str> = self
            .gpus
            .iter()
            .filter(|(_, driver)| driver.is_none())
            .map(|(address, _)| address.as_str())
            .collect();
        match (self.gpus.len(), without.as_slice()) {
            (0, _) => (CheckStatus::Absent, "there is no GPU".to_owned()),
            (n, []) => (CheckStatus::Pass, format!("{n} GPUs have a driver")),
            (_, without) => (
                CheckStatus::Warn,
                format!("without a driver: {}", without.join(", ")),
            ),
        }
    }
}

fn gpus(sys: &Path) -> Vec<(String, Option<String>)> {
    let Ok(devices) = fs::read_dir(sys.join("bus/pci/devices")) else {
        return Vec::new();
    };
    let word = |path: &Path| {
        read_text(path, 64)
            .map(|t| t.trim().to_owned())
            .unwrap_or_default()
    };
    let mut found: Vec<_> = devices
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let vendor = word(&path.join("vendor"));
            // Base class 3: display controllers.
            let display = word(&path.join("class")).starts_with("0x03");
            if !display || (vendor != NVIDIA && vendor != AMD) {
                return None;
            }
            let driver = fs::read_link(path.join("driver")).ok();
            let driver = driver.and_then(|d| Some(d.file_name()?.to_str()?.to_owned()));
            Some((entry.file_name().to_str()?.to_owned(), driver))
        })
        .collect();
    found.sort();
    found
}

fn links(sys: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir(sys.join("class/infiniband")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for device in devices.flatten() {
        let Ok(ports) = fs::read_dir(device.path().join("ports")) else {
            continue;
        };
        for port in ports.flatten() {
            let Ok(state) = read_text(&port.path().join("state"), 64) else {
                continue;
            };
            // "4: ACTIVE"
            let word = state.trim().rsplit(' ').next().unwrap_or_default().to_owned();
            let unused = if unused(&port.path()) { UNUSED } else { "" };
            let (device, port) = (device.file_name(), port.file_name());
            found.push(format!(
                "{}/{} {word}{unused}",
                device.to_string_lossy(),
                port.to_string_lossy()
            ));
        }
    }
    found.sort();
    found
}

/// Switched off by the site, or waiting for a cable and without a word received so far.
fn unused(port: &Path) -> bool {
    let read = |name: &str| read_text(&port.join(name), 64).unwrap_or_default();
    // "2: Polling"
    match read("phys_state").trim().rsplit(' ').next() {
        Some("Disabled") => true,
        Some("Polling" | "Sleep") => read("counters/port_rcv_data").trim() == "0",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_never_up_is_missed_only_where_no_other_is_up() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let port = |device: &str, state: &str, physical: &str, received: &str| {
            let port = roots.sys.join(format!("class/infiniband/{device}/ports/1"));
            fs::create_dir_all(port.join("counters")).unwrap();
            for (name, text) in [
                ("state", state),
                ("phys_state", physical),
                ("counters/port_rcv_data", received),
            ] {
                fs::write(port.join(name), format!("{text}\n")).unwrap();
            }
        };
        let fabric = || probe(&roots, Some(vec![HealthCheck::Fabric])).checks.remove(0);
        port("mlx5_0", "4: ACTIVE", "5: LinkUp", "77");
        port("mlx5_1", "1: DOWN", "2: Polling", "0");
        port("mlx5_2", "1: DOWN", "3: Disabled", "9");
        let check = fabric();
        assert_eq!(
            (check.status, check.detail.as_str()),
            (CheckStatus::Pass, "1 ports are up")
        );
        // It was in use: somebody misses it.
        port("mlx5_1", "1: DOWN", "2: Polling", "5");
        let check = fabric();
        assert_eq!(
            (check.status, check.detail.as_str()),
            (CheckStatus::Fail, "mlx5_1/1 DOWN")
        );
        port("mlx5_1", "1: DOWN", "2: Polling", "0");
        port("mlx5_0", "1: DOWN", "2: Polling", "0");
        assert_eq!(fabric().status, CheckStatus::Fail);
    }
}
