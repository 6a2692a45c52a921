//! InfiniBand and RoCE ports: link state, rate, traffic, error counters of `/sys/class/infiniband`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::number;
use crate::probe::source::fixed_point;
use crate::probe::{Roots, line, names_in, percent};

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
    /// It was active earlier in the life of this process and is not any more.
    pub lost: bool,
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
    was_active: bool,
}

/// Keeps the counters of the last look.
#[derive(Debug)]
pub struct InfinibandProbe {
    class: PathBuf,
    before: BTreeMap<(String, String), Before>,
}

impl InfinibandProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            class: roots.sys.join("class/infiniband"),
            before: BTreeMap::new(),
        }
    }

    /// All ports; empty without InfiniBand.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Vec<Port> {
        let mut ports = Vec::new();
        for device in names_in(&self.class) {
            let dir = self.class.join(&device).join("ports");
            for port in names_in(&dir) {
                let path = dir.join(&port);
                if let Some(mut p) = describe(&path, &device, &port) {
                    self.compare(&mut p, now);
                    ports.push(p);
                }
            }
        }
        ports
    }

    fn compare(&mut self, p: &mut Port, now: Instant) {
        let key = (p.device.clone(), p.port.clone());
        let before = self.before.get(&key).copied();
        p.lost = !p.is_active() && before.is_some_and(|b| b.was_active);
        if let Some(b) = before {
            let moved = |new: Option<u64>, old: Option<u64>| new?.checked_sub(old?);
            let bytes = moved(p.received, b.received).max(moved(p.sent, b.sent));
            let micros = u64::try_from(now.saturating_duration_since(b.at).as_micros()).unwrap_or(u64::MAX);
            // Mbit/s × µs = bits.
            p.percent = bytes
                .zip(p.rate_mbps)
                .and_then(|(bytes, rate)| percent(bytes.saturating_mul(8), rate.saturating_mul(micros)));
        }
        let was_active = p.is_active() || p.lost;
        self.before.insert(
            key,
            Before {
                received: p.received,
                sent: p.sent,
                at: now,
                was_active,
            },
        );
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
    })
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
fn megabits(text: &str) -> Option<u64> {
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

    #[test]
    fn ports_of_a_recorded_node_are_read() {
        let (_dir, roots) = recorded("gpu-node");
        let ports = InfinibandProbe::new(&roots).read(Instant::now());
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
        let (_dir, roots) = recorded("gpu-node");
        let mut probe = InfinibandProbe::new(&roots);
        let start = Instant::now();
        assert!(probe.read(start).iter().all(|p| p.percent.is_none()));
        let port = roots.sys.join("class/infiniband/mlx5_0/ports/1");
        // 100 GB in 10 s of 400 Gbit/s = 20 %.
        fs::write(
            port.join("counters/port_rcv_data"),
            format!("{}\n", 81_273_645_123u64 + 25_000_000_000),
        )
        .unwrap();
        let now = start + Duration::from_secs(10);
        assert_eq!(probe.read(now)[0].percent, Some(20));
        fs::write(port.join("state"), "1: DOWN\n").unwrap();
        // The counters went back: no figure for one interval.
        fs::write(port.join("counters/port_rcv_data"), "0\n").unwrap();
        fs::write(port.join("counters/port_xmit_data"), "0\n").unwrap();
        for _ in 0..2 {
            let p = &probe.read(now + Duration::from_secs(10))[0];
            assert!(p.lost && !p.is_active());
        }
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        assert!(!probe.read(now + Duration::from_secs(20))[0].lost);
    }

    #[test]
    fn rates_are_read_in_megabits() {
        assert_eq!(megabits("2.5 Gb/sec (1X SDR)"), Some(2_500));
        assert_eq!(megabits("100 Gb/sec (4X EDR)"), Some(100_000));
        assert_eq!(megabits("x"), None);
        assert_eq!(word("5: LinkUp"), "linkup");
    }
}
