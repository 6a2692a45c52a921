//! Counts of errors and warnings that survive restarts and say since when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::classify::{Class, Weight, answers_again, classify, interface_in, is_of_a_server, server_in};
use super::faults::remember;
use super::kmsg::Record;
use super::told::{Errors, LastError, LinkSeen, XidSeen};
use super::xid;
use crate::probe::window::{DAY, DayCount};

/// Interfaces whose messages are counted.
const LINKS: usize = 64;
/// File servers that are remembered.
const SERVERS: usize = 64;
/// Lines of one incident.
const BURST_MICROS: u64 = 1_000_000;

/// What is kept in the file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ErrorLog {
    /// UNIX seconds since which messages are counted, and none was lost.
    pub since: u64,
    /// Boot whose messages were read last.
    boot_id: String,
    /// The next message of that boot.
    next: u64,
    /// Messages that were overwritten before they were read, over all time.
    pub missed: u64,
    /// Where the journal was left.
    pub cursor: Option<String>,
    /// The newest of its entries that was counted, in microseconds since 1970.
    pub journal_until: Option<u64>,
    errors: DayCount,
    warnings: DayCount,
    classes: BTreeMap<String, DayCount>,
    /// The last error.
    last: Option<LastError>,
    /// The last error of each class: one of another class says nothing of the first.
    lasts: BTreeMap<String, LastError>,
    /// What drivers of links have written, by interface.
    links: BTreeMap<String, LinkLog>,
    /// File servers that do not answer, with the last error of each.
    servers: BTreeMap<String, LastError>,
    xids: Vec<XidSeen>,
    /// The last line that was counted.
    #[serde(skip)]
    burst: Option<(Class, u64)>,
    /// Lines that were taken for one with it: read again without it, they would count.
    #[serde(skip)]
    held_back: u64,
}

/// What is kept of one interface.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct LinkLog {
    messages: DayCount,
    /// UNIX seconds.
    last: u64,
    /// When one of its driver's messages was last counted in this boot.
    #[serde(skip)]
    micros: Option<u64>,
}

/// The clocks at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clocks {
    /// UNIX seconds.
    pub unix: u64,
    /// Seconds since boot.
    pub uptime: u64,
}

impl Clocks {
    /// When the kernel wrote it.
    fn of(self, micros: u64) -> u64 {
        self.unix
            .saturating_sub(self.uptime.saturating_sub(micros / 1_000_000))
    }
}

impl ErrorLog {
    /// Nothing yet.
    #[must_use]
    pub(super) fn new(now: u64) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// As it was kept. A former version took a file server's trouble for one of this machine's disks: it would go on to
    /// drain the node.
    #[must_use]
    pub(super) fn taken_over(mut self) -> Self {
        let of_a_server = |l: &LastError| l.class == Class::FileSystem.as_str() && is_of_a_server(&l.text);
        self.lasts.retain(|_, l| !of_a_server(l));
        if let Some(last) = self.last.as_mut().filter(|l| of_a_server(l)) {
            Class::FileServer.as_str().clone_into(&mut last.class);
        }
        self
    }

    /// The next message that is to be read.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the same was counted as `other` has; how far each has read is another matter.
    pub(super) fn counts_as(&self, other: &mut Self) -> bool {
        let read = std::mem::replace(&mut other.next, self.next);
        let same = self == other;
        other.next = read;
        same
    }

    /// Another boot's messages begin anew; what GPUs and file servers did before is healed by it.
    pub(super) fn boot(&mut self, id: &str) {
        if self.boot_id != id {
            id.clone_into(&mut self.boot_id);
            self.next = 0;
            self.xids.clear();
            self.servers.clear();
            self.burst = None;
            self.links.values_mut().for_each(|l| l.micros = None);
        }
    }

    /// Takes a kernel message, unless it was counted before.
    pub(super) fn kernel(&mut self, r: Record<'_>, clocks: Clocks) {
        if r.sequence < self.next {
            return;
        }
        let at = clocks.of(r.micros);
        let lost = r.sequence.saturating_sub(self.next);
        if lost > 0 && (self.next > 0 || at > self.since) {
            // The oldest that is left: who reads the figure must not take it for that of the whole day.
            self.missed = self.missed.saturating_add(lost);
            self.since = self.since.max(at);
        } else if self.next == 0 {
            // The kernel remembers from before our time.
            self.since = self.since.min(at).max(clocks.unix.saturating_sub(DAY));
        }
        self.next = r.sequence.saturating_add(1);
        if r.facility != 0 {
            return;
        }
        if let Some(server) = answers_again(r.text) {
            self.servers.remove(server);
        }
        let Some((class, weight)) = classify(r.level, r.text) else {
            return;
        };
        if class == Class::FileServer {
            let name = server_in(r.text);
            make_room(&mut self.servers, name, SERVERS, clocks.unix, |said| said.at);
            self.servers.insert(name.to_owned(), said(at, class, r.text));
        }
        if class == Class::Link {
            // Several cards without a name are not one that flaps.
            if let Some(name) = interface_in(r.text) {
                self.link(name, r.micros, at, clocks.unix);
            }
        }
        // From the line that was counted: what is written without a pause is counted each second, not once.
        if class.comes_in_bursts()
            && self
                .burst
                .is_some_and(|(c, then)| c == class && r.micros.saturating_sub(then) < BURST_MICROS)
        {
            self.held_back = self.held_back.wrapping_add(1);
            return;
        }
        self.burst = Some((class, r.micros));
        if let Some((device, code)) = xid::parse(r.text).filter(|_| at.saturating_add(DAY) > clocks.unix) {
            remember(&mut self.xids, device, code, at, clocks.unix);
        }
        self.add(at, clocks.unix, class, weight, r.text);
    }

    /// Counts one interface's message; cards of one switch go down in the same second.
    fn link(&mut self, name: &str, micros: u64, at: u64, now: u64) {
        make_room(&mut self.links, name, LINKS, now, |l| l.last);
        let link = self.links.entry(name.to_owned()).or_default();
        link.last = link.last.max(at);
        // One that writes without a pause is counted each second, not once.
        if link
            .micros
            .is_none_or(|then| micros.saturating_sub(then) >= BURST_MICROS)
        {
            link.micros = Some(micros);
            link.messages.add(at, now, 1);
        }
    }

    /// Counts one message.
    pub(super) fn add(&mut self, at: u64, now: u64, class: Class, weight: Weight, text: &str) {
        match weight {
            Weight::Error => self.errors.add(at, now, 1),
            Weight::Warning => self.warnings.add(at, now, 1),
        }
        self.classes
            .entry(class.as_str().to_owned())
            .or_default()
            .add(at, now, 1);
        let newer = |l: Option<&LastError>| l.is_none_or(|l| at >= l.at);
        if weight == Weight::Error && newer(self.lasts.get(class.as_str())) {
            let error = said(at, class, text);
            if newer(self.last.as_ref()) {
                self.last = Some(error.clone());
            }
            self.lasts.insert(error.class.clone(), error);
        }
    }

    /// The last 24 hours.
    #[must_use]
    pub(super) fn counts(&self, now: u64) -> Errors {
        let recent = |at: u64| at.saturating_add(DAY) > now;
        Errors {
            errors: self.errors.total(now),
            warnings: self.warnings.total(now),
            // Not ahead, where the clock was set back.
            since: self.since.max(now.saturating_sub(DAY)).min(now),
            missed: self.missed,
            without_kernel: false,
            without_journal: None,
            classes: self
                .classes
                .iter()
                .map(|(class, count)| (class.clone(), count.total(now)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            last: self.last.clone().filter(|l| recent(l.at)),
            lasts: self
                .lasts
                .iter()
                .filter(|(_, l)| recent(l.at))
                .map(|(class, l)| (class.clone(), l.clone()))
                .collect(),
            links: self
                .links
                .iter()
                .filter(|(_, l)| recent(l.last))
                .map(|(name, l)| {
                    let seen = LinkSeen {
                        messages: l.messages.total(now),
                        last: l.last,
                    };
                    (name.clone(), seen)
                })
                .collect(),
            servers: self
                .servers
                .iter()
                .filter(|(_, said)| recent(said.at))
                .map(|(name, said)| (name.clone(), said.clone()))
                .collect(),
            xids: self.xids.iter().filter(|x| recent(x.at)).cloned().collect(),
        }
    }
}

/// Room for `name`: what is older than a day goes, and the oldest where there are too many.
fn make_room<T>(all: &mut BTreeMap<String, T>, name: &str, most: usize, now: u64, last: impl Fn(&T) -> u64) {
    all.retain(|_, one| last(one).saturating_add(DAY) > now);
    if !all.contains_key(name) && all.len() >= most {
        let oldest = all.iter().min_by_key(|(_, one)| last(one));
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            all.remove(&oldest);
        }
    }
}

/// A message as it is kept.
fn said(at: u64, class: Class, text: &str) -> LastError {
    let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    LastError {
        at,
        class: class.as_str().to_owned(),
        text: text.take(256).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::errors::kmsg::parse;

    const NOW: u64 = 1_795_303_803;
    const CLOCKS: Clocks = Clocks {
        unix: NOW,
        uptime: 10_000,
    };
    /// An 8-GPU node: boot, an Xid, ECC, an OOM kill with its stack, a broken disk, a machine check.
    const RECORDED: &str = include_str!("../../../fixtures/kmsg/gpu-node.txt");

    fn take(log: &mut ErrorLog, text: &str, clocks: Clocks) {
        text.lines()
            .filter_map(|l| parse(l.as_bytes()))
            .for_each(|r| log.kernel(r, clocks));
    }

    #[test]
    fn what_a_former_version_took_for_a_disks_trouble_and_was_a_file_servers_is_forgotten() {
        let class = Class::FileSystem;
        for (text, stays) in [
            ("nfs: server filer not responding, still trying", false),
            (
                "LustreError: 11-0: fs-OST0001-osc-ffff: operation ost_statfs to node 10.0.0.1@o2ib failed: rc = -107",
                false,
            ),
            (
                "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2",
                true,
            ),
        ] {
            let mut log = ErrorLog::new(NOW);
            log.add(NOW, NOW, Class::Io, Weight::Error, "I/O error, dev sda, sector 0");
            log.add(NOW, NOW, class, Weight::Error, text);
            let counts = log.taken_over().counts(NOW);
            assert_eq!(counts.last_of(class.as_str()).is_some(), stays, "{text}");
            assert!(counts.last_of("io").is_some() && counts.last.is_some_and(|l| l.text == text));
        }
    }

    #[test]
    fn a_recorded_log_gives_its_counts_once_even_over_a_restart() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        take(&mut log, RECORDED, CLOCKS);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.warnings), (6, 7), "{c:?}");
        let classes: Vec<(&str, u32)> = c.classes.iter().map(|(k, n)| (k.as_str(), *n)).collect();
        assert_eq!(
            classes,
            [
                ("edac", 2),
                ("io", 2),
                ("link", 1),
                ("mce", 1),
                ("oom", 1),
                ("other", 4),
                ("xid", 2)
            ]
        );
        let last = c.last.unwrap();
        assert_eq!((last.class.as_str(), last.at), ("xid", NOW - 10_000 + 9_000));
        assert!(last.text.contains("fallen off the bus"));
        let xids: Vec<(u32, &str)> = c.xids.iter().map(|x| (x.code, x.device.as_str())).collect();
        assert_eq!(xids, [(31, "0000:1b:00"), (79, "0000:3b:00")]);
        assert_eq!(c.since, NOW - 10_000);

        let text = serde_json::to_string(&log).unwrap();
        let mut again: ErrorLog = serde_json::from_str(&text).unwrap();
        again.boot("b1");
        take(&mut again, RECORDED, CLOCKS);
        assert_eq!(again.counts(NOW), log.counts(NOW));
        assert_eq!(again.missed, 0);
    }

    #[test]
    fn a_line_that_would_not_count_when_read_again_is_no_difference() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        take(&mut log, "3,0,9000000000,-;usb 1-1: error\n", CLOCKS);
        let mut kept = log.clone();
        take(&mut log, "6,1,9000100000,-;quiet\n", CLOCKS);
        assert!(log.counts_as(&mut kept));
        assert_eq!((log.next(), kept.next()), (2, 1));
        // One incident with the first; by itself it would be another.
        take(&mut log, "3,2,9000200000,-;usb 1-1: error\n", CLOCKS);
        assert_eq!(log.counts(NOW).errors, 1);
        assert!(!log.counts_as(&mut kept));
        log.boot("b2");
        assert!(!log.counts_as(&mut kept), "nothing of another boot is kept");
    }

    #[test]
    fn another_boot_adds_to_the_counts_and_heals_gpus() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        take(&mut log, RECORDED, CLOCKS);
        log.boot("b2");
        let later = Clocks {
            unix: NOW + 600,
            uptime: 100,
        };
        take(
            &mut log,
            "3,7,5000000,-;usb 1-1: error\n3,12,9000000,-;usb 1-1: error\n",
            later,
        );
        let c = log.counts(NOW + 600);
        assert_eq!((c.errors, c.xids.len()), (8, 0));
        // Seven before the first that the kernel still had, four in between.
        assert_eq!((c.missed, c.since), (11, NOW + 600 - 100 + 9));
    }

    #[test]
    fn after_a_loss_counts_are_of_the_time_since_and_say_so() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        // What was overwritten before the first look is from before our time.
        take(&mut log, "3,40,5000000000,-;usb 1-1: error\n", CLOCKS);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.missed, c.since), (1, 0, NOW - 5_000));
        take(&mut log, "3,41,6000000000,-;usb 1-1: error\n", CLOCKS);
        assert_eq!(log.counts(NOW).since, NOW - 5_000);
        take(
            &mut log,
            "3,1041,9000000000,-;usb 1-1: error\n3,1042,9500000000,-;usb 1-1: error\n",
            CLOCKS,
        );
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.missed, c.since), (4, 999, NOW - 1_000));
        // It is told after a restart, and for no longer than a day.
        let text = serde_json::to_string(&log).unwrap();
        let again: ErrorLog = serde_json::from_str(&text).unwrap();
        let c = again.counts(NOW + 2 * DAY);
        assert_eq!((c.errors, c.missed, c.since), (0, 999, NOW + DAY));
        // Lost while the clock was a year ahead.
        let ahead = Clocks {
            unix: NOW + 365 * DAY,
            ..CLOCKS
        };
        take(&mut log, "6,2000,9600000000,-;quiet\n", ahead);
        assert_eq!(log.counts(NOW).since, NOW);
    }

    #[test]
    fn an_error_of_another_class_hides_none() {
        let mut log = ErrorLog::new(NOW);
        take(
            &mut log,
            "2,1,9000000000,-;EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2\n\
             3,2,9060000000,-;usb 1-1: device descriptor read/64, error -71\n",
            CLOCKS,
        );
        let c = log.counts(NOW);
        assert_eq!(c.last.as_ref().unwrap().class, "other");
        assert!(c.last_of("filesystem").unwrap().text.contains("sda1"));
        assert_eq!(c.last_of("io"), None);
        // At most one of each class is kept.
        for n in 3..1000 {
            take(
                &mut log,
                &format!("3,{n},9070000000,-;I/O error, dev sd{n}, sector 0\n"),
                CLOCKS,
            );
        }
        let kept = log.counts(NOW).lasts;
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["filesystem", "io", "other"]);
        assert!(kept["io"].text.contains("sd999"));
    }

    #[test]
    fn a_file_server_is_remembered_until_it_answers_again() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        take(
            &mut log,
            "6,1,9000000000,-;nfs: server filer not responding, still trying\n\
             6,2,9001000000,-;nfs: server other not responding, still trying\n\
             3,3,9002000000,-;LustreError: 11-0: fs-OST0001-osc-ffff: operation ost_statfs to node 10.0.0.1@o2ib failed: rc = -107\n",
            CLOCKS,
        );
        let names = |log: &ErrorLog| log.counts(NOW).servers.into_keys().collect::<Vec<_>>();
        assert_eq!(names(&log), ["10.0.0.1@o2ib", "filer", "other"]);
        assert_eq!(log.counts(NOW).servers["filer"].at, NOW - 1_000);
        let kept: ErrorLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
        let mut log = kept;
        take(
            &mut log,
            "5,4,9100000000,-;nfs: server filer OK\n\
             6,5,9101000000,-;Lustre: fs-OST0001-osc-ffff: Connection restored to fs-OST0001 (at 10.0.0.1@o2ib)\n",
            CLOCKS,
        );
        assert_eq!(names(&log), ["other"]);
        // On record for the day all the same, and of no disk of this machine.
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.classes["file_server"]), (3, 3));
        assert_eq!(c.last_of("filesystem"), None);
        // Bounded, and forgotten with the boot.
        let lines: String = (10..1000)
            .map(|n| format!("6,{n},9200000000,-;nfs: server s{n} not responding, timed out\n"))
            .collect();
        take(&mut log, &lines, CLOCKS);
        assert_eq!(log.counts(NOW).servers.len(), SERVERS);
        log.boot("b2");
        assert!(names(&log).is_empty());
    }

    #[test]
    fn a_flood_of_programs_faults_hides_no_card_that_is_lost_and_former_records_are_read() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        let mut lines =
            "4,1,9000000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n".to_owned();
        for n in 2..500 {
            let code = [13, 31, 45][n % 3];
            lines += &format!("4,{n},9000000000,-;NVRM: Xid (PCI:0000:1b:00): {code}, pid={n}\n");
        }
        take(&mut log, &lines, CLOCKS);
        let xids = log.counts(NOW).xids;
        assert_eq!(xids.len(), 4, "{xids:?}");
        assert_eq!((xids[0].code, xids[0].count), (79, 1));
        assert_eq!(xids.iter().map(|x| x.count).sum::<u32>(), 499);
        // Each line for itself and without a count, as they were kept before.
        let one = |at: u64, code: u32| serde_json::json!({"at": at, "device": "0000:1b:00", "code": code});
        let former = serde_json::json!({
            "since": NOW - 9_000, "boot_id": "b1", "next": 7,
            "xids": [one(NOW - 900, 31), one(NOW - 800, 31), one(NOW - 700, 48)],
        });
        let mut log: ErrorLog = serde_json::from_value(former).unwrap();
        log.boot("b1");
        take(
            &mut log,
            "4,7,9900000000,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1\n",
            CLOCKS,
        );
        let xids = log.counts(NOW).xids;
        let seen: Vec<(u32, u32, u64)> = xids.iter().map(|x| (x.code, x.count, NOW - x.at)).collect();
        assert_eq!(seen, [(48, 1, 700), (31, 3, 100)]);
    }

    #[test]
    fn links_are_counted_by_interface_and_one_incident_of_each_once() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        // A switch goes down: both cards say so at once, and one says it twice.
        for (n, second) in [9000, 9100, 9200].into_iter().enumerate() {
            let lines: String = ["eth0: Link is down", "eth1: Link is down", "eth0: Link is down"]
                .iter()
                .zip(3 * n..)
                .map(|(text, s)| format!("6,{},{second}000{s:03},-;tg3 0000:02:00.0 {text}\n", s + 1))
                .collect();
            take(&mut log, &lines, CLOCKS);
        }
        let seen = LinkSeen {
            messages: 3,
            last: NOW - 800,
        };
        let links = log.counts(NOW).links;
        assert_eq!(
            links,
            [("eth0".to_owned(), seen), ("eth1".to_owned(), seen)].into()
        );
        // Virtual ones come and go.
        let lines: String = (10..1000)
            .map(|n| format!("6,{n},9500000000,-;tg3 0000:02:00.0 veth{n}: Link is down\n"))
            .collect();
        take(&mut log, &lines, CLOCKS);
        assert_eq!(log.counts(NOW).links.len(), LINKS);
        let text = serde_json::to_string(&log).unwrap();
        let again: ErrorLog = serde_json::from_str(&text).unwrap();
        assert_eq!(again.counts(NOW).links, log.counts(NOW).links);
        assert!(again.counts(NOW + DAY).links.is_empty());
    }

    #[test]
    fn a_link_that_never_rests_is_counted_each_second_and_one_without_a_name_is_nobodys() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        let lines: String = (0..10u64)
            .map(|n| {
                let micros = 9_000_000_000 + n * 500_000;
                let text = if n % 2 == 0 {
                    "eth0: Link is down"
                } else {
                    "eth0: NIC Link is Down"
                };
                format!("6,{},{micros},-;tg3 0000:02:00.0 {text}\n", n + 1)
            })
            .collect();
        take(&mut log, &lines, CLOCKS);
        take(
            &mut log,
            "6,11,9100000000,-;Link is down\n6,12,9200000000,-;Link is down\n6,13,9300000000,-;Link is Down\n",
            CLOCKS,
        );
        let counts = log.counts(NOW);
        let links: Vec<(&str, u32)> = counts
            .links
            .iter()
            .map(|(n, l)| (n.as_str(), l.messages))
            .collect();
        assert_eq!(links, [("eth0", 5)]);
        assert!(counts.classes["link"] >= 3, "{:?}", counts.classes);
    }

    #[test]
    fn errors_that_never_rest_are_counted_as_long_as_they_come() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        // Two a second for ten seconds.
        let lines: String = (0..20u64)
            .map(|n| {
                format!(
                    "0,{},{},-;mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7\n",
                    n + 1,
                    9_000_000_000 + n * 500_000
                )
            })
            .collect();
        take(&mut log, &lines, CLOCKS);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.classes["mce"]), (10, 10), "{c:?}");
        assert_eq!(c.last.unwrap().at, NOW - 10_000 + 9_009);
    }

    #[test]
    fn what_is_older_than_a_day_is_not_counted() {
        let mut log = ErrorLog::new(NOW);
        log.boot("b1");
        let old = Clocks {
            unix: NOW,
            uptime: 10 * DAY,
        };
        take(&mut log, RECORDED, old);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.warnings, c.last, c.xids.len()), (0, 0, None, 0));
        assert_eq!(c.since, NOW - DAY);
    }

    #[test]
    fn services_write_to_the_kernels_log_too_and_do_not_count() {
        let mut log = ErrorLog::new(NOW);
        take(&mut log, "27,1,5,-;systemd[1]: Failed to start x\n", CLOCKS);
        assert_eq!(log.counts(NOW).errors, 0);
    }
}
