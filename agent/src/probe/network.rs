//! How much of its link the busiest network device used since the last look.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::source::{Source, lines, unsigned, words};
use super::{Roots, percent};

/// What links' drivers have said, shared by who asks them and who measures by it.
#[derive(Debug, Default, Clone)]
pub struct LinkDrivers(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Of each link, Mbit/s; none: its driver was not asked yet, or the link is down.
    speeds: BTreeMap<String, Option<u64>>,
    /// Those that are being asked, once for each reader: one that hangs stays here.
    asked: Vec<String>,
}

/// Reads `/proc/net/dev`; link speeds are those that a [`LinkSpeeds`] beside it has read. Only physical devices count
/// (those with a `device` link): bridges, tunnels and bonds carry the same bytes again.
#[derive(Debug)]
pub struct NetworkProbe {
    dev: Source,
    sys_net: PathBuf,
    drivers: LinkDrivers,
    /// The names of the last look → state; none for names that are not physical devices.
    links: BTreeMap<String, Known>,
    looks: u32,
}

/// Reads the speeds of the links that a [`NetworkProbe`] has found, in `/sys/class/net`. Apart from it: a driver answers, and
/// where one hangs the others' links are measured all the same, and its own by the speed that it had.
#[derive(Debug)]
pub struct LinkSpeeds {
    sys_net: PathBuf,
    drivers: LinkDrivers,
    files: BTreeMap<String, Source>,
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
/// Every so many looks a link's speed is read anew: it changes rarely.
const SPEED: u32 = 4;
/// So many drivers that hang are waited for at most; once so many readers are left with them, no further one asks those again.
const LEFT: usize = 8;
/// Of such a reader: as a collector's.
const STACK: usize = 256 << 10;

#[derive(Debug)]
struct Link {
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

impl LinkDrivers {
    fn ask(&self, name: &str, file: &mut Source) {
        {
            let mut said = self.lock();
            if !said.may_ask(name) {
                return;
            }
            said.asked.push(name.to_owned());
        }
        // −1, or an error while the link is down.
        let speed = file.number().and_then(|s| u64::try_from(s).ok());
        let mut said = self.lock();
        if let Some(at) = said.asked.iter().position(|n| n == name) {
            said.asked.swap_remove(at);
        }
        // None that has gone meanwhile.
        if let Some(known) = said.speeds.get_mut(name) {
            *known = speed.filter(|s| *s > 0);
        }
    }

    /// Where a driver does not answer, the others are asked by a thread that ends then, or stays with the next one that
    /// hangs.
    fn ask_others(&self, sys_net: &Path, all: bool) {
        let others = {
            let said = self.lock();
            if said.asked.is_empty() {
                return;
            }
            let mut others = said.others(all);
            others.retain(|name| said.may_ask(name));
            others
        };
        if others.is_empty() {
            return;
        }
        let (drivers, sys_net) = (self.clone(), sys_net.to_owned());
        let ask = move || {
            for name in others {
                drivers.ask(&name, &mut speed_of(&sys_net, &name));
            }
        };
        // Without a thread: with a later look.
        let thread = std::thread::Builder::new().name("link speeds".into());
        thread.stack_size(STACK).spawn(ask).ok();
    }

    /// Held for no longer than a look into it: never while a driver is asked.
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// Whether one more reader may be left with it, should its driver hang.
    fn may_ask(&self, name: &str) -> bool {
        let again = self.asked.iter().any(|n| n == name);
        let drivers = || self.asked.iter().collect::<BTreeSet<_>>().len();
        let left = if again { self.asked.len() } else { drivers() };
        left < LEFT
    }

    /// Of whom nothing is known, or all, but for those that are being asked.
    fn others(&self, all: bool) -> Vec<String> {
        let due = self.speeds.iter().filter(|(_, speed)| all || speed.is_none());
        let others = due.map(|(name, _)| name).filter(|n| !self.asked.contains(n));
        others.cloned().collect()
    }
}

impl LinkSpeeds {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            sys_net: roots.sys.join("class/net"),
            drivers: LinkDrivers::default(),
            files: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Where it puts what drivers say.
    pub fn drivers(&mut self) -> &mut LinkDrivers {
        &mut self.drivers
    }

    /// Reads those that are not known, and every so many looks all.
    pub fn read(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        let all = self.looks.is_multiple_of(SPEED);
        for name in self.due(all) {
            let file = self
                .files
                .entry(name.clone())
                .or_insert_with(|| speed_of(&self.sys_net, &name));
            self.drivers.ask(&name, file);
        }
    }

    /// Last those that have not answered one before this: they may hang this one too.
    fn due(&mut self, all: bool) -> Vec<String> {
        let said = self.drivers.lock();
        self.files.retain(|name, _| said.speeds.contains_key(name));
        let mut due = said.others(all);
        due.extend(said.speeds.keys().filter(|n| said.asked.contains(n)).cloned());
        due
    }
}

impl NetworkProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots, speeds: &LinkSpeeds) -> Self {
        Self {
            // Of the network namespace of this process.
            dev: Source::new(roots.proc.join("net/dev")),
            sys_net: roots.sys.join("class/net"),
            drivers: speeds.drivers.clone(),
            links: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Where it takes from what drivers say.
    pub fn drivers(&mut self) -> &mut LinkDrivers {
        &mut self.drivers
    }

    /// The busiest link since the last call. None on the first call, or if no device has told its speed (virtual
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
                let link = dir.join("device").exists().then_some(Link {
                    received,
                    sent,
                    at: None,
                });
                if link.is_some() {
                    self.drivers.lock().speeds.entry(name.to_owned()).or_default();
                }
                self.links.insert(name.to_owned(), Known { look, link });
            }
            let Some(known) = self.links.get_mut(name) else {
                continue;
            };
            known.look = look;
            let Some(link) = &mut known.link else { continue };
            let megabits = self.drivers.lock().speeds.get(name).copied().flatten();
            if let Some(p) = link.step(received, sent, now, megabits)
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
        let counts = |name: &String| self.links.get(name).is_some_and(|k| k.link.is_some());
        self.drivers.lock().speeds.retain(|name, _| counts(name));
        self.drivers
            .ask_others(&self.sys_net, self.looks.is_multiple_of(SPEED));
        best
    }
}

impl Link {
    fn step(&mut self, received: u64, sent: u64, now: Instant, megabits: Option<u64>) -> Option<u8> {
        let then = self.at.replace(now);
        let rx = received.checked_sub(std::mem::replace(&mut self.received, received));
        let tx = sent.checked_sub(std::mem::replace(&mut self.sent, sent));
        let bytes = rx?.max(tx?);
        let elapsed = u64::try_from(now.saturating_duration_since(then?).as_micros()).ok()?;
        // Mbit/s × µs = bits.
        percent(bytes.saturating_mul(8), megabits?.saturating_mul(elapsed))
    }
}

fn speed_of(sys_net: &Path, name: &str) -> Source {
    Source::new(sys_net.join(name).join("speed"))
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
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

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
        let mut speeds = LinkSpeeds::new(&roots);
        let mut probe = NetworkProbe::new(&roots, &speeds);
        let start = Instant::now();
        stats(1_000_000_000, 0);
        assert_eq!(probe.busiest(start), None);
        speeds.read();
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
        let mut speeds = LinkSpeeds::new(&roots);
        let mut probe = NetworkProbe::new(&roots, &speeds);
        let start = Instant::now();
        // 50 MB a second are 40 % of 1 Gbit/s.
        let mut look = |n: u32| {
            let bytes = u64::from(n) * 50_000_000;
            let text = format!("  eth0: {bytes} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n");
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            speeds.read();
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
        let mut speeds = LinkSpeeds::new(&roots);
        let mut probe = NetworkProbe::new(&roots, &speeds);
        let start = Instant::now();
        let mut look = |probe: &mut NetworkProbe, n: u32| {
            let bytes = u64::from(n) * 50_000_000;
            let text = format!(
                "  eth0: {bytes} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n  veth{n}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
            );
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            speeds.read();
            assert!(speeds.files.len() <= 1, "{:?}", speeds.files.keys());
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

    #[test]
    fn however_many_readers_are_left_with_one_driver_the_other_links_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.proc.join("net")).unwrap();
        let net = roots.sys.join("class/net");
        for link in ["eth0", "eth1"] {
            fs::create_dir_all(net.join(link).join("device")).unwrap();
        }
        // Whoever opens it waits for a writer.
        mkfifoat(CWD, net.join("eth0/speed"), Mode::RUSR | Mode::WUSR).unwrap();
        fs::write(net.join("eth1/speed"), "-1\n").unwrap();
        let speeds = LinkSpeeds::new(&roots);
        let drivers = speeds.drivers.clone();
        let mut probe = NetworkProbe::new(&roots, &speeds);
        let start = Instant::now();
        let mut look = |n: u32| {
            // More than a link can carry.
            let (bytes, rest) = (u64::from(n) << 40, "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0");
            let text = format!("  eth0: {bytes} {rest}\n  eth1: {bytes} {rest}\n");
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            let used = probe.busiest(start + Duration::from_secs(u64::from(n)));
            used.map(|u| u.device)
        };
        assert_eq!(look(1), None);
        // As with each reload.
        let reader = || {
            let (done, ended) = mpsc::channel();
            let mut next = LinkSpeeds::new(&roots);
            next.drivers().clone_from(&drivers);
            std::thread::spawn(move || {
                next.read();
                done.send(()).ok();
            });
            ended
        };
        let (pause, long) = (Duration::from_millis(10), Duration::from_secs(60));
        let hang = || drivers.lock().asked.iter().filter(|n| *n == "eth0").count();
        for left in 1..=LEFT {
            drop(reader());
            while hang() < left {
                assert!(start.elapsed() < long, "reader {left} asks it, too");
                std::thread::sleep(pause);
            }
        }
        reader()
            .recv_timeout(long)
            .expect("it passes by the one that hangs");
        assert_eq!(hang(), LEFT);
        // The other link comes up.
        fs::write(net.join("eth1/speed"), "1000\n").unwrap();
        let known = (2..).any(|n| {
            std::thread::sleep(pause);
            look(n).as_deref() == Some("eth1") || start.elapsed() > 3 * long
        });
        assert!(known && start.elapsed() <= 3 * long);
    }
}
