//! How much of its link the busiest network device used since the last look.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::source::{Source, lines, unsigned, words};
use super::{Roots, percent};

/// Reads `/proc/net/dev` and the link speeds in `/sys/class/net`. Only physical devices count (those with a `device`
/// link): bridges, tunnels and bonds carry the same bytes again.
#[derive(Debug)]
pub struct NetworkProbe {
    dev: Source,
    sys_net: PathBuf,
    /// The names of the last look → state; none for names that are not physical devices.
    links: BTreeMap<String, Known>,
    looks: u32,
}

#[derive(Debug)]
struct Known {
    /// The look that has shown it last.
    look: u32,
    link: Option<Link>,
}

/// Every so many looks a name that is no physical device is looked at anew: it may have been seen before all of it was
/// there.
const AFRESH: u32 = 16;
/// Every so many looks a link's speed is read anew: its driver is asked for it, and it changes rarely.
const SPEED: u32 = 4;

#[derive(Debug)]
struct Link {
    speed: Source,
    /// None: to be read.
    megabits: Option<u64>,
    received: u64,
    sent: u64,
    at: Option<Instant>,
}

/// The busiest link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUse {
    /// Its name.
    pub device: String,
    /// The busier direction against the link's speed.
    pub percent: u8,
}

impl NetworkProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            // Of the network namespace of this process.
            dev: Source::new(roots.proc.join("net/dev")),
            sys_net: roots.sys.join("class/net"),
            links: BTreeMap::new(),
            looks: 0,
        }
    }

    /// The busiest link since the last call. None on the first call, or if no device tells its speed (virtual
    /// machines' often do not).
    #[must_use]
    pub fn busiest(&mut self, now: Instant) -> Option<NetworkUse> {
        let text = self.dev.read().ok()?;
        self.looks = self.looks.wrapping_add(1);
        let (look, afresh) = (self.looks, self.looks.is_multiple_of(AFRESH));
        let mut best: Option<NetworkUse> = None;
        for (name, received, sent) in lines(text).filter_map(parse) {
            let known = |k: &Known| k.link.is_some() || !afresh;
            if !self.links.get(name).is_some_and(known) {
                let dir = self.sys_net.join(name);
                let link = dir.join("device").exists().then(|| Link {
                    speed: Source::new(dir.join("speed")),
                    megabits: None,
                    received,
                    sent,
                    at: None,
                });
                self.links.insert(name.to_owned(), Known { look, link });
            }
            let Some(known) = self.links.get_mut(name) else {
                continue;
            };
            known.look = look;
            let Some(link) = &mut known.link else { continue };
            if look.is_multiple_of(SPEED) {
                link.megabits = None;
            }
            if let Some(p) = link.step(received, sent, now)
                && best.as_ref().is_none_or(|b| p > b.percent)
            {
                best = Some(NetworkUse {
                    device: name.to_owned(),
                    percent: p,
                });
            }
        }
        // Names of containers' interfaces are made up anew each time.
        self.links.retain(|_, known| known.look == look);
        best
    }
}

impl Link {
    fn step(&mut self, received: u64, sent: u64, now: Instant) -> Option<u8> {
        let then = self.at.replace(now);
        let rx = received.checked_sub(std::mem::replace(&mut self.received, received));
        let tx = sent.checked_sub(std::mem::replace(&mut self.sent, sent));
        let bytes = rx?.max(tx?);
        let elapsed = u64::try_from(now.saturating_duration_since(then?).as_micros()).ok()?;
        if self.megabits.is_none() {
            // −1, or an error while the link is down.
            let speed = self.speed.number().and_then(|s| u64::try_from(s).ok());
            self.megabits = speed.filter(|s| *s > 0);
        }
        let megabits = self.megabits?;
        // Mbit/s × µs = bits.
        percent(bytes.saturating_mul(8), megabits.saturating_mul(elapsed))
    }
}

/// `  eth0: rx_bytes packets errs drop fifo frame compressed multicast tx_bytes …`
fn parse(line: &[u8]) -> Option<(&str, u64, u64)> {
    let colon = line.iter().position(|b| *b == b':')?;
    let (name, rest) = line.split_at_checked(colon)?;
    let name = std::str::from_utf8(name.trim_ascii()).ok()?;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return None;
    }
    let mut words = words(rest.get(1..)?);
    let received = unsigned(words.next()?)?;
    Some((name, received, unsigned(words.nth(7)?)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_busier_direction_counts_against_the_link_speed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.proc.join("net")).unwrap();
        for (link, speed) in [("eth0", "1000\n"), ("eth1", "-1\n")] {
            let at = roots.sys.join("class/net").join(link);
            fs::create_dir_all(at.join("device")).unwrap();
            fs::write(at.join("speed"), speed).unwrap();
        }
        fs::create_dir_all(roots.sys.join("class/net/br0")).unwrap();
        let stats = |rx: u64, tx: u64| {
            let mut text = "Inter-|   Receive\n face |bytes    packets\n".to_owned();
            for name in ["    lo", "  eth0", "  eth1", "   br0"] {
                text += &format!("{name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0\n");
            }
            fs::write(roots.proc.join("net/dev"), text).unwrap();
        };
        let mut probe = NetworkProbe::new(&roots);
        let start = Instant::now();
        stats(1_000_000_000, 0);
        assert_eq!(probe.busiest(start), None);
        // 10 s at 1 Gbit/s are 1.25 GB; 500 MB sent are 40 %.
        stats(1_050_000_000, 500_000_000);
        let now = start + Duration::from_secs(10);
        assert_eq!(
            probe.busiest(now),
            Some(NetworkUse {
                device: "eth0".into(),
                percent: 40
            })
        );
        // Counters were reset: unknown, not a huge number.
        stats(0, 0);
        assert_eq!(probe.busiest(now + Duration::from_secs(10)), None);
    }

    #[test]
    fn a_link_that_has_another_speed_counts_by_it_a_few_looks_later() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.proc.join("net")).unwrap();
        let eth0 = roots.sys.join("class/net/eth0");
        fs::create_dir_all(eth0.join("device")).unwrap();
        fs::write(eth0.join("speed"), "1000\n").unwrap();
        let mut probe = NetworkProbe::new(&roots);
        let start = Instant::now();
        // 50 MB a second are 40 % of 1 Gbit/s.
        let mut look = |n: u32| {
            let bytes = u64::from(n) * 50_000_000;
            let text = format!("  eth0: {bytes} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n");
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            probe
                .busiest(start + Duration::from_secs(u64::from(n)))
                .map(|u| u.percent)
        };
        assert_eq!([look(1), look(2)], [None, Some(40)]);
        fs::write(eth0.join("speed"), "2500\n").unwrap();
        let seen: Vec<_> = (3..8).map(&mut look).collect();
        assert_eq!(seen, [40, 16, 16, 16, 16].map(Some));
        // The link goes down.
        fs::write(eth0.join("speed"), "-1\n").unwrap();
        assert_eq!((look(8), look(9)), (None, None));
        // It is up again: it counts at once.
        fs::write(eth0.join("speed"), "1000\n").unwrap();
        assert_eq!(look(10), Some(40));
    }

    #[test]
    fn names_that_come_and_go_take_no_memory_and_a_late_device_counts() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.proc.join("net")).unwrap();
        let eth0 = roots.sys.join("class/net/eth0");
        fs::create_dir_all(&eth0).unwrap();
        fs::write(eth0.join("speed"), "1000\n").unwrap();
        let mut probe = NetworkProbe::new(&roots);
        let start = Instant::now();
        let look = |probe: &mut NetworkProbe, n: u32| {
            let bytes = u64::from(n) * 50_000_000;
            let text = format!(
                "  eth0: {bytes} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n  veth{n}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
            );
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            probe.busiest(start + Duration::from_secs(u64::from(n)))
        };
        for n in 1..100 {
            assert_eq!(look(&mut probe, n), None, "no device yet");
            assert!(probe.links.len() <= 2, "{:?}", probe.links.keys());
        }
        fs::create_dir_all(eth0.join("device")).unwrap();
        let seen = (100..100 + 2 * AFRESH).find_map(|n| look(&mut probe, n));
        assert_eq!(seen.map(|u| u.percent), Some(40));
    }
}
