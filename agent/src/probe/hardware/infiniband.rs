//! InfiniBand and RoCE ports: link state, rate, traffic, error counters of `/sys/class/infiniband`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::number;
use crate::probe::kept::Kept;
use crate::probe::seen::Seen;
use crate::probe::source::fixed_point;
use crate::probe::window::DayCount;
use crate::probe::{Roots, line, names_in, pci, percent};

/// Counters that rise when a link is bad.
const ERROR_COUNTERS: [&str; 9] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
];

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Device, such as `mlx5_0`.
    pub device: String,
    /// Number of the port.
    pub port: String,
    /// `active`, `init`, `down`, …
    pub state: String,
    /// `linkup`, `polling`, `disabled`, …
    pub physical: String,
    /// `infiniband` or `ethernet`.
    pub layer: String,
    /// Megabits per second.
    pub rate_mbps: Option<u64>,
    /// Bytes received since the counters began.
    pub received: Option<u64>,
    /// Bytes sent since the counters began.
    pub sent: Option<u64>,
    /// Errors of all kinds since the counters began; those that are not 0.
    pub errors: BTreeMap<String, u64>,
    /// Percent of the rate in the busier direction since the last look.
    pub percent: Option<u8>,
    /// It was active once and is not any more, or is not there any more.
    pub lost: bool,
    /// How often its link went down within 24 hours (`link_downed`).
    pub flaps: u32,
    /// When that was seen last, in UNIX seconds.
    pub last_flap: Option<u64>,
}

impl Port {
    /// Whether traffic can pass.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "active"
    }
}

#[derive(Debug, Clone, Copy)]
struct Before {
    received: Option<u64>,
    sent: Option<u64>,
    at: Instant,
}

/// A port that was active, by its device's GUID where it has one: names may change with the next start of the host.
type Active = BTreeMap<String, Known>;

/// Where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    device: String,
    port: String,
    /// PCI address.
    pci: Option<String>,
    /// `link_downed` at the last look.
    #[serde(default)]
    downed: u64,
    #[serde(default)]
    flaps: DayCount,
    #[serde(default)]
    last_flap: Option<u64>,
}

impl Known {
    /// Takes over what the port's counter says now, which begins anew with its driver.
    fn count(&mut self, downed: u64, unix: u64) {
        let more = downed.saturating_sub(std::mem::replace(&mut self.downed, downed));
        if more > 0 {
            self.flaps
                .add(unix, unix, u32::try_from(more).unwrap_or(u32::MAX));
            self.last_flap = Some(unix);
        }
    }
}

/// Keeps the counters of the last look, and what was active.
#[derive(Debug)]
pub struct InfinibandProbe {
    sys: PathBuf,
    class: PathBuf,
    before: BTreeMap<(String, String), Before>,
    active: Seen<Active>,
}

impl InfinibandProbe {
    /// Nothing is read yet. `kept`: where ports that were active are kept.
    #[must_use]
    pub fn new(roots: &Roots, kept: impl Into<Kept>) -> Self {
        Self {
            sys: roots.sys.clone(),
            class: roots.sys.join("class/infiniband"),
            before: BTreeMap::new(),
            active: Seen::new(kept),
        }
    }

    /// All ports, and those that were active and are not there any more; empty without InfiniBand. `unix` is the wall
    /// clock in seconds.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Vec<Port> {
        let mut ports = Vec::new();
        let mut active = self.active.value();
        let mut gone = active.clone();
        for device in names_in(&self.class) {
            let of = self.class.join(&device);
            let guid = line(&of.join("node_guid"));
            // What a device makes for a guest comes and goes, and so does what a program makes without a device.
            let stays = !is_soft(&of) && !of.join("device/physfn").exists();
            for port in names_in(&of.join("ports")) {
                let Some(mut p) = describe(&of.join("ports").join(&port), &device, &port) else {
                    continue;
                };
                self.compare(&mut p, now);
                let key = format!("{}/{port}", guid.as_deref().unwrap_or(&device));
                gone.remove(&key);
                let downed = p.errors.get("link_downed").copied().unwrap_or(0);
                match active.get_mut(&key) {
                    Some(known) => {
                        p.lost = !p.is_active();
                        known.count(downed, unix);
                        (p.flaps, p.last_flap) = (known.flaps.total(unix), known.last_flap);
                        known.device.clone_from(&device);
                        known.pci = address(&of);
                    }
                    None if p.is_active() && stays => {
                        let known = Known {
                            device: device.clone(),
                            port,
                            pci: address(&of),
                            downed,
                            flaps: DayCount::default(),
                            last_flap: None,
                        };
                        active.insert(key, known);
                    }
                    None => {}
                }
                ports.push(p);
            }
        }
        self.before
            .retain(|(device, port), _| ports.iter().any(|p| p.device == *device && p.port == *port));
        self.active.keep(active);
        // Without its tree nothing can be said.
        if self.sys.join("class").is_dir() {
            ports.extend(gone.into_values().filter(|k| !self.is_passed(k)).map(missing));
        }
        ports
    }

    /// Whether a guest has the device.
    fn is_passed(&self, known: &Known) -> bool {
        let device = known
            .pci
            .as_ref()
            .map(|pci| self.sys.join("bus/pci/devices").join(pci));
        device
            .and_then(|device| pci::driver(&device))
            .is_some_and(|driver| pci::PASSED.contains(&driver.as_str()))
    }

    fn compare(&mut self, p: &mut Port, now: Instant) {
        let this = Before {
            received: p.received,
            sent: p.sent,
            at: now,
        };
        let Some(b) = self.before.insert((p.device.clone(), p.port.clone()), this) else {
            return;
        };
        let moved = |new: Option<u64>, old: Option<u64>| new?.checked_sub(old?);
        let bytes = moved(p.received, b.received).max(moved(p.sent, b.sent));
        let micros = u64::try_from(now.saturating_duration_since(b.at).as_micros()).unwrap_or(u64::MAX);
        // Mbit/s × µs = bits.
        p.percent = bytes
            .zip(p.rate_mbps)
            .and_then(|(bytes, rate)| percent(bytes.saturating_mul(8), rate.saturating_mul(micros)));
    }
}

/// PCI address of a device.
fn address(device: &Path) -> Option<String> {
    let link = std::fs::read_link(device.join("device")).ok()?;
    link.file_name()?.to_str().map(str::to_owned)
}

fn missing(known: Known) -> Port {
    Port {
        device: known.device,
        port: known.port,
        state: "gone".to_owned(),
        physical: "not there".to_owned(),
        layer: String::new(),
        rate_mbps: None,
        received: None,
        sent: None,
        errors: BTreeMap::new(),
        percent: None,
        lost: true,
        flaps: 0,
        last_flap: None,
    }
}

fn describe(path: &Path, device: &str, port: &str) -> Option<Port> {
    let counters = path.join("counters");
    // Data counters count words of four bytes.
    let bytes = |name: &str| count(&counters, name).and_then(|n| n.checked_mul(4));
    Some(Port {
        device: device.to_owned(),
        port: port.to_owned(),
        state: word(&line(&path.join("state"))?),
        physical: line(&path.join("phys_state"))
            .map(|t| word(&t))
            .unwrap_or_default(),
        layer: line(&path.join("link_layer")).unwrap_or_default().to_lowercase(),
        rate_mbps: line(&path.join("rate")).and_then(|t| megabits(&t)),
        received: bytes("port_rcv_data"),
        sent: bytes("port_xmit_data"),
        errors: ERROR_COUNTERS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), count(&counters, name).filter(|n| *n > 0)?)))
            .collect(),
        percent: None,
        lost: false,
        flaps: 0,
        last_flap: None,
    })
}

/// Made of a network card by a program (`rxe`, `siw`).
fn is_soft(device: &Path) -> bool {
    std::fs::read_link(device).is_ok_and(|to| to.iter().any(|part| part == "virtual"))
}

fn count(dir: &Path, name: &str) -> Option<u64> {
    number(&dir.join(name)).and_then(|n| u64::try_from(n).ok())
}

/// `4: ACTIVE` → `active`
fn word(text: &str) -> String {
    text.split_once(':')
        .map_or(text, |(_, w)| w)
        .trim()
        .to_lowercase()
}

/// `400 Gb/sec (4X NDR)` → 400000
pub(super) fn megabits(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    unit.starts_with("Gb/sec")
        .then(|| fixed_point(number.as_bytes(), 3))?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::probe::recorded;

    const NOW: u64 = 1_795_303_803;

    #[test]
    fn ports_of_a_recorded_node_are_read() {
        let (dir, roots) = recorded("gpu-node");
        let ports = InfinibandProbe::new(&roots, dir.path().join("ports.json")).read(Instant::now(), NOW);
        assert_eq!(ports.len(), 9);
        assert_eq!(
            ports
                .iter()
                .filter(|p| p.layer == "infiniband" && p.is_active())
                .count(),
            7
        );
        let first = &ports[0];
        assert_eq!(
            (first.device.as_str(), first.rate_mbps),
            ("mlx5_0", Some(400_000))
        );
        assert_eq!(
            (first.received, first.errors.len()),
            (Some(4 * 81_273_645_123), 0)
        );
        let broken = ports.iter().find(|p| p.device == "mlx5_5").unwrap();
        assert_eq!(
            (broken.state.as_str(), broken.physical.as_str(), broken.lost),
            ("down", "polling", false)
        );
        assert_eq!(broken.errors.get("link_downed"), Some(&3));
        let ethernet = ports.iter().find(|p| p.device == "mlx5_bond_0").unwrap();
        assert_eq!(
            (ethernet.layer.as_str(), ethernet.rate_mbps),
            ("ethernet", Some(25_000))
        );
    }

    #[test]
    fn use_is_that_of_the_busier_direction_and_a_link_that_goes_down_is_lost() {
        let (dir, roots) = recorded("gpu-node");
        let mut probe = InfinibandProbe::new(&roots, dir.path().join("ports.json"));
        let start = Instant::now();
        assert!(probe.read(start, NOW).iter().all(|p| p.percent.is_none()));
        let port = roots.sys.join("class/infiniband/mlx5_0/ports/1");
        // 100 GB in 10 s of 400 Gbit/s = 20 %.
        fs::write(
            port.join("counters/port_rcv_data"),
            format!("{}\n", 81_273_645_123u64 + 25_000_000_000),
        )
        .unwrap();
        let now = start + Duration::from_secs(10);
        assert_eq!(probe.read(now, NOW)[0].percent, Some(20));
        fs::write(port.join("state"), "1: DOWN\n").unwrap();
        // The counters went back: no figure for one interval.
        fs::write(port.join("counters/port_rcv_data"), "0\n").unwrap();
        fs::write(port.join("counters/port_xmit_data"), "0\n").unwrap();
        for _ in 0..2 {
            let p = &probe.read(now + Duration::from_secs(10), NOW)[0];
            assert!(p.lost && !p.is_active());
        }
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        assert!(!probe.read(now + Duration::from_secs(20), NOW)[0].lost);
    }

    #[test]
    fn a_port_that_was_active_is_lost_over_restarts_until_a_person_accepts_it() {
        let (dir, roots) = recorded("gpu-node");
        let kept = dir.path().join("ports.json");
        let new = || InfinibandProbe::new(&roots, kept.clone());
        let lost = |probe: &mut InfinibandProbe| -> Vec<String> {
            let ports = probe.read(Instant::now(), NOW);
            ports
                .into_iter()
                .filter(|p| p.lost)
                .map(|p| format!("{} {}", p.device, p.state))
                .collect()
        };
        let class = roots.sys.join("class/infiniband");
        fs::write(class.join("mlx5_1/node_guid"), "a088:c203:0054:0001\n").unwrap();
        let mut running = new();
        assert!(lost(&mut running).is_empty());
        fs::write(class.join("mlx5_0/ports/1/state"), "1: DOWN\n").unwrap();
        // Another name for the same port is no loss; a device that has left is one.
        fs::rename(class.join("mlx5_1"), class.join("ibp12s0")).unwrap();
        fs::remove_dir_all(class.join("mlx5_2")).unwrap();
        for _ in 0..2 {
            assert_eq!(lost(&mut new()), ["mlx5_0 down", "mlx5_2 gone"]);
        }
        assert_eq!(lost(&mut running), ["mlx5_0 down", "mlx5_2 gone"]);
        fs::remove_file(&kept).unwrap();
        assert!(lost(&mut running).is_empty());
        assert!(lost(&mut new()).is_empty());
        fs::write(class.join("mlx5_0/ports/1/state"), "4: ACTIVE\n").unwrap();
        assert!(lost(&mut running).is_empty());
        fs::remove_dir_all(class.join("mlx5_0")).unwrap();
        assert_eq!(lost(&mut new()), ["mlx5_0 gone"]);
    }

    #[test]
    fn a_device_that_a_guest_has_is_not_lost() {
        let (dir, roots) = recorded("gpu-node");
        let kept = dir.path().join("ports.json");
        let device = roots.sys.join("class/infiniband/mlx5_0/device");
        fs::remove_file(&device).ok();
        std::os::unix::fs::symlink("../../../0000:0c:00.0", &device).unwrap();
        drop(InfinibandProbe::new(&roots, kept.clone()).read(Instant::now(), NOW));
        fs::remove_dir_all(roots.sys.join("class/infiniband/mlx5_0")).unwrap();
        let on_bus = roots.sys.join("bus/pci/devices/0000:0c:00.0");
        fs::create_dir_all(&on_bus).unwrap();
        fs::remove_file(on_bus.join("driver")).ok();
        std::os::unix::fs::symlink("../../../bus/pci/drivers/vfio-pci", on_bus.join("driver")).unwrap();
        let lost = || {
            InfinibandProbe::new(&roots, kept.clone())
                .read(Instant::now(), NOW)
                .iter()
                .any(|p| p.lost)
        };
        assert!(!lost());
        fs::remove_file(on_bus.join("driver")).unwrap();
        assert!(lost());
    }

    #[test]
    fn drops_of_a_link_count_for_a_day_and_over_restarts() {
        let (dir, roots) = recorded("gpu-node");
        let kept = dir.path().join("ports.json");
        let counter = roots
            .sys
            .join("class/infiniband/mlx5_0/ports/1/counters/link_downed");
        let look = |probe: &mut InfinibandProbe, unix| {
            let first = probe.read(Instant::now(), unix).swap_remove(0);
            assert_eq!(first.device, "mlx5_0");
            (first.flaps, first.last_flap)
        };
        let mut probe = InfinibandProbe::new(&roots, kept.clone());
        fs::write(&counter, "7\n").unwrap();
        assert_eq!(look(&mut probe, NOW), (0, None), "from before our time");
        fs::write(&counter, "9\n").unwrap();
        assert_eq!(look(&mut probe, NOW + 60), (2, Some(NOW + 60)));
        fs::write(&counter, "10\n").unwrap();
        let mut again = InfinibandProbe::new(&roots, kept);
        assert_eq!(look(&mut again, NOW + 120), (3, Some(NOW + 120)));
        // The driver was loaded anew.
        fs::write(&counter, "0\n").unwrap();
        assert_eq!(look(&mut again, NOW + 180), (3, Some(NOW + 120)));
        fs::write(&counter, "1\n").unwrap();
        assert_eq!(look(&mut again, NOW + 240), (4, Some(NOW + 240)));
        assert_eq!(look(&mut again, NOW + 2 * 86_400).0, 0);
    }

    #[test]
    fn rates_are_read_in_megabits() {
        assert_eq!(megabits("2.5 Gb/sec (1X SDR)"), Some(2_500));
        assert_eq!(megabits("100 Gb/sec (4X EDR)"), Some(100_000));
        assert_eq!(megabits("x"), None);
        assert_eq!(word("5: LinkUp"), "linkup");
    }
}
