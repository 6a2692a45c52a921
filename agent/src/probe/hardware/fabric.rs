//! How much of its rate the busiest InfiniBand or RoCE port used since the last look: what goes by RDMA no network
//! device counts. Only the traffic: state and errors are read less often ([`super::infiniband`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::infiniband::megabits;
use crate::probe::network::NetworkUse;
use crate::probe::source::Source;
use crate::probe::{Roots, line, names_in, percent};

/// Every so many looks a port's rate is read anew: the adapter's firmware is asked for it, and it changes rarely.
const AFRESH: u32 = 4;

/// Keeps the counters of the last look.
#[derive(Debug)]
pub struct FabricProbe {
    class: PathBuf,
    /// By name, such as `mlx5_0/1`.
    ports: BTreeMap<String, Port>,
    looks: u32,
}

#[derive(Debug)]
struct Port {
    folder: PathBuf,
    received: Source,
    sent: Source,
    rate_mbps: Option<u64>,
    before: Option<Counters>,
    /// The look that has shown it last.
    look: u32,
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    received: Option<u64>,
    sent: Option<u64>,
    at: Instant,
}

impl FabricProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            class: roots.sys.join("class/infiniband"),
            ports: BTreeMap::new(),
            looks: 0,
        }
    }

    /// The busiest port since the last call. None on the first call, and without InfiniBand.
    #[must_use]
    pub fn busiest(&mut self, now: Instant) -> Option<NetworkUse> {
        self.looks = self.looks.wrapping_add(1);
        let (look, afresh) = (self.looks, self.looks.is_multiple_of(AFRESH));
        let mut best: Option<NetworkUse> = None;
        for device in names_in(&self.class) {
            let folder = self.class.join(&device).join("ports");
            for number in names_in(&folder) {
                let name = format!("{device}/{number}");
                let port = self
                    .ports
                    .entry(name.clone())
                    .or_insert_with(|| Port::new(&folder.join(&number)));
                port.look = look;
                if let Some(percent) = port.step(now, afresh)
                    && best.as_ref().is_none_or(|b| percent > b.percent)
                {
                    best = Some(NetworkUse {
                        device: name,
                        percent,
                    });
                }
            }
        }
        self.ports.retain(|_, port| port.look == look);
        best
    }
}

impl Port {
    fn new(folder: &Path) -> Self {
        let counter = |name: &str| Source::new(folder.join("counters").join(name));
        Self {
            folder: folder.to_owned(),
            received: counter("port_rcv_data"),
            sent: counter("port_xmit_data"),
            rate_mbps: None,
            before: None,
            look: 0,
        }
    }

    fn step(&mut self, now: Instant, afresh: bool) -> Option<u8> {
        let this = Counters {
            received: bytes(&mut self.received),
            sent: bytes(&mut self.sent),
            at: now,
        };
        let before = self.before.replace(this);
        if afresh || self.rate_mbps.is_none() {
            self.rate_mbps = line(&self.folder.join("rate")).and_then(|t| megabits(&t));
        }
        let before = before?;
        let moved = |new: Option<u64>, old: Option<u64>| new?.checked_sub(old?);
        let most = moved(this.received, before.received).max(moved(this.sent, before.sent))?;
        let micros = u64::try_from(now.saturating_duration_since(before.at).as_micros()).ok()?;
        // Mbit/s × µs = bits.
        percent(most.saturating_mul(8), self.rate_mbps?.saturating_mul(micros))
    }
}

/// Data counters count words of four bytes.
fn bytes(counter: &mut Source) -> Option<u64> {
    u64::try_from(counter.number()?).ok()?.checked_mul(4)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::probe::recorded;

    #[test]
    fn the_busiest_port_counts_against_its_own_rate() {
        let (_dir, roots) = recorded("gpu-node");
        let class = roots.sys.join("class/infiniband");
        let mut probe = FabricProbe::new(&roots);
        let start = Instant::now();
        assert_eq!(probe.busiest(start), None);
        let counter = class.join("mlx5_0/ports/1/counters/port_rcv_data");
        let before: u64 = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        // 100 GB in 10 s of 400 Gbit/s = 20 %.
        fs::write(&counter, format!("{}\n", before + 25_000_000_000)).unwrap();
        let now = start + Duration::from_secs(10);
        let busiest = NetworkUse {
            device: "mlx5_0/1".into(),
            percent: 20,
        };
        assert_eq!(probe.busiest(now), Some(busiest));
        // At half the rate the same is twice as much, once the rate is read again.
        fs::write(class.join("mlx5_0/ports/1/rate"), "200 Gb/sec (4X HDR)\n").unwrap();
        let mut words = before + 25_000_000_000;
        let mut shown = Vec::new();
        for n in 2..6 {
            words += 25_000_000_000;
            fs::write(&counter, format!("{words}\n")).unwrap();
            shown.extend(
                probe
                    .busiest(start + Duration::from_secs(10 * n))
                    .map(|b| b.percent),
            );
        }
        assert_eq!(shown, [20, 40, 40, 40]);
        // Counters of a driver that was loaded anew: this port is left out once.
        for name in ["port_rcv_data", "port_xmit_data"] {
            fs::write(class.join("mlx5_0/ports/1/counters").join(name), "0\n").unwrap();
        }
        let other = probe.busiest(start + Duration::from_secs(60)).unwrap();
        assert_eq!(other.percent, 0);
        fs::remove_dir_all(&class).unwrap();
        assert_eq!(probe.busiest(start + Duration::from_secs(70)), None);
        assert!(probe.ports.is_empty());
    }
}
