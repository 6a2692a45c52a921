//! Whether this is the machine that was registered. A network device may appear after the agent has started, and a node
//! without a disk may have booted over another one: what differs counts once a second look has found it too (firmware's own
//! numbers are never late: at once), and no longer than until a look finds nothing.

use std::time::{Duration, Instant};

use crate::clock::instant;
use crate::patient::Patient;
use crate::probe::Roots;
use crate::probe::fingerprint::{self, Fingerprint};

/// What is known of it.
#[derive(Debug)]
pub(super) struct Hardware {
    /// What differs; none where nothing could be compared. A file of it may lie where nothing answers.
    look: Patient<Option<Vec<String>>>,
    /// When to look; none once nothing differs: parts are changed while a host is down.
    due: Option<Instant>,
    /// The last look has found a difference.
    differs: bool,
    /// Why this is not the machine that was registered.
    changed: Option<String>,
}

impl Hardware {
    /// Nothing is looked at yet.
    pub(super) fn new() -> Self {
        Self {
            look: Patient::new(None),
            due: Some(instant()),
            differs: false,
            changed: None,
        }
    }

    /// Why this is not the machine that was registered, if it is not.
    pub(super) fn changed(&self) -> Option<&str> {
        self.changed.as_deref()
    }

    /// When to look next.
    pub(super) fn again_at(&self) -> Option<Instant> {
        self.due
    }

    /// Looks if it is time to, and has it done again after `pause` where something differs.
    pub(super) fn look(&mut self, registered: Option<&Fingerprint>, roots: &Roots, pause: Duration) {
        let now = instant();
        if self.due.is_none_or(|at| now < at) {
            return;
        }
        self.due = None;
        let Some(registered) = registered.cloned() else {
            return;
        };
        let again = now.checked_add(pause);
        let roots = roots.clone();
        let question = move |found: &mut Option<Vec<String>>| {
            *found = fingerprint::changes(&roots, &registered);
        };
        let changes = self.look.ask(question).cloned().flatten();
        self.found(changes, again);
    }

    /// Takes over what a look has found, none if it could compare nothing or has no answer yet; where it is not the end, the
    /// next one is `again`.
    fn found(&mut self, changes: Option<Vec<String>>, again: Option<Instant>) {
        let Some(changes) = changes else {
            self.due = again;
            return;
        };
        let differs = !changes.is_empty();
        self.due = again.filter(|_| differs);
        let firm = changes.iter().any(|c| c.starts_with("dmi."));
        if differs && (firm || self.differs) && self.changed.is_none() {
            let message = format!(
                "the hardware is not the one registered ({}); register the node again",
                changes.join(", ")
            );
            tracing::warn!("{message}");
            self.changed = Some(message);
        }
        if !differs && self.changed.take().is_some() {
            tracing::info!("the hardware is the one registered");
        }
        self.differs = differs;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::probe::fingerprint::tests::{card, without};

    const PAUSE: Duration = Duration::from_secs(60);

    /// A machine that was registered with its first card, and has started without it.
    fn late() -> (tempfile::TempDir, Roots, Fingerprint) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        card(&roots, "eth0", "02:00:00:00:00:01\n");
        let registered = fingerprint::read(&roots).unwrap();
        without(&roots, "eth0");
        card(&roots, "eth1", "02:00:00:00:00:02\n");
        (dir, roots, registered)
    }

    /// A look, without a thread that may be late.
    fn look(hardware: &mut Hardware, roots: &Roots, registered: &Fingerprint) {
        let again = instant().checked_add(PAUSE);
        hardware.found(fingerprint::changes(roots, registered), again);
    }

    #[tokio::test(start_paused = true)]
    async fn a_card_that_appears_after_the_start_makes_no_other_machine() {
        let (_dir, roots, registered) = late();
        let mut hardware = Hardware::new();
        look(&mut hardware, &roots, &registered);
        assert_eq!((hardware.changed(), hardware.differs), (None, true));
        card(&roots, "eth0", "02:00:00:00:00:01\n");
        look(&mut hardware, &roots, &registered);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, None));
        // What leaves while the agent runs is looked at by nobody, and costs nothing.
        without(&roots, "eth0");
        tokio::time::advance(PAUSE * 100).await;
        hardware.look(Some(&registered), &roots, PAUSE);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_differs_counts_from_the_second_look_until_one_finds_nothing() {
        let (_dir, roots, registered) = late();
        let mut hardware = Hardware::new();
        look(&mut hardware, &roots, &registered);
        let due = hardware.again_at();
        assert!(due.is_some() && hardware.changed().is_none());
        // Before that nothing is looked at.
        tokio::time::advance(Duration::from_secs(59)).await;
        hardware.look(Some(&registered), &roots, PAUSE);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, due));
        look(&mut hardware, &roots, &registered);
        let why = hardware.changed().unwrap_or_default().to_owned();
        assert!(
            why.contains("(mac)") && why.contains("register the node again"),
            "{why}"
        );
        card(&roots, "eth0", "02:00:00:00:00:01\n");
        look(&mut hardware, &roots, &registered);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn another_number_of_firmwares_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let dmi = roots.sys.join("class/dmi/id");
        fs::create_dir_all(&dmi).unwrap();
        fs::write(dmi.join("product_serial"), "S-1\n").unwrap();
        let registered = fingerprint::read(&roots).unwrap();
        fs::write(dmi.join("product_serial"), "S-2\n").unwrap();
        let mut hardware = Hardware::new();
        look(&mut hardware, &roots, &registered);
        assert!(
            hardware
                .changed()
                .is_some_and(|why| why.contains("(dmi.product_serial)"))
        );
        // A look that can compare nothing neither ends it nor is the last.
        fs::remove_dir_all(&dmi).unwrap();
        look(&mut hardware, &roots, &registered);
        assert!(hardware.changed().is_some() && hardware.again_at().is_some());
        fs::create_dir_all(&dmi).unwrap();
        fs::write(dmi.join("product_serial"), "S-1\n").unwrap();
        look(&mut hardware, &roots, &registered);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_can_compare_nothing_is_made_again() {
        let (_dir, roots, registered) = late();
        without(&roots, "eth1");
        let mut hardware = Hardware::new();
        for _ in 0..3 {
            look(&mut hardware, &roots, &registered);
            assert!(hardware.changed().is_none() && hardware.again_at().is_some());
        }
        // Another machine, whose driver was late.
        card(&roots, "eth0", "02:00:00:00:00:02\n");
        look(&mut hardware, &roots, &registered);
        assert!(hardware.changed().is_none());
        look(&mut hardware, &roots, &registered);
        assert!(hardware.changed().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_at_by_another_thread_when_it_is_time_to() {
        let (_dir, roots, registered) = late();
        let mut hardware = Hardware::new();
        // An answer may be late: the next look takes it.
        for _ in 0..1000 {
            hardware.look(Some(&registered), &roots, PAUSE);
            if hardware.differs {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            tokio::time::advance(PAUSE).await;
        }
        assert!(hardware.differs && hardware.changed().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_registered_fingerprint_nothing_is_looked_at_twice() {
        let (_dir, roots, _) = late();
        let mut hardware = Hardware::new();
        hardware.look(None, &roots, PAUSE);
        assert_eq!((hardware.changed(), hardware.again_at()), (None, None));
    }
}
