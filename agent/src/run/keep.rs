//! What is written into the state directory beside orders and the record of service, by the thread of the collectors:
//! where the directory hangs, the loop does not. Certificate and registration are tried again until they are kept.

use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::identity::Places;
use crate::command::{Diagnostic, keep};
use crate::config::SamplingConfig;
use crate::files::{Durability, FileError, Replace, write};
use crate::history::{History, Values};
use crate::sample::{Category, Collector, Reading};
use crate::sequence::{Reservation, Reserved, SequenceError};
use crate::state::{Outages, Registration, ServiceWish, StateDir, Status, StatusFile};
use crate::uplink::{Identity, Known, read_known};

/// Its name, as of a collector.
pub(super) const STATE_DIRECTORY: &str = "state directory";
/// Samples that wait for a directory that does not answer; the oldest go.
const WAITING: usize = 64;
/// Reports that wait for it; the oldest go.
const REPORTS: usize = 8;
/// Between two looks for a person's wish: one wake-up writes more than once.
const LOOK: Duration = Duration::from_secs(1);

/// A sample: UNIX seconds and the moment beside it.
type Taken = (Category, Values, u64, Instant);

/// What a diagnostic has found.
#[derive(Debug)]
struct Report {
    of: Diagnostic,
    at: u64,
    value: serde_json::Value,
}

/// What is to be written; of each kind the newest.
#[derive(Default)]
struct Asked {
    /// As JSON: the loop hands over no copy of all its words.
    status: Option<Vec<u8>>,
    samples: Vec<Taken>,
    bounds: Option<SamplingConfig>,
    outages: Option<Outages>,
    block: Option<Reservation>,
    /// Certificate and key in one file.
    certificate: Option<Zeroizing<String>>,
    registration: Option<Registration>,
    reports: Vec<Report>,
    /// Where a certificate is looked for.
    places: Option<Places>,
    /// The CA file, to be read again: by default it lies in the state directory.
    ca: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) status: Option<Result<(), FileError>>,
    pub(super) samples: Option<Result<(), FileError>>,
    pub(super) block: Option<Result<Reserved, SequenceError>>,
    pub(super) certificate: Option<Result<(), FileError>>,
    pub(super) registration: Option<Result<(), FileError>>,
    pub(super) reports: Option<Result<(), FileError>>,
    /// The certificate that was looked for.
    pub(super) found: Option<Identity>,
    /// What the CA file holds, if it could be read.
    pub(super) known: Option<Known>,
    /// What a person has put there.
    pub(super) wish: Option<ServiceWish>,
}

#[derive(Default)]
struct Shared {
    asked: Asked,
    kept: Kept,
    /// A certificate is in use that the disk does not hold yet.
    certificate_waits: bool,
    /// What the last status was written out in, for the next one.
    spare: Vec<u8>,
}

/// The loop's side.
#[derive(Default, Clone)]
pub(super) struct Keeper(Arc<Mutex<Shared>>);

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other side, for a sampler.
    pub(super) fn attendant(&self, state: &StateDir, bounds: &SamplingConfig) -> Box<dyn Collector> {
        Box::new(Writer {
            keeper: self.clone(),
            status: StatusFile::new(state),
            history: History::new(&state.history(), bounds),
            state: state.clone(),
            looked: None,
        })
    }

    pub(super) fn status(&self, status: &Status) {
        let mut json = take(&mut self.lock().spare);
        json.clear();
        match serde_json::to_writer(&mut json, status) {
            Ok(()) => self.lock().asked.status = Some(json),
            Err(e) => tracing::warn!("status is no JSON: {e}"),
        }
    }

    pub(super) fn sample(&self, category: Category, values: Values, unix: u64, now: Instant) {
        let samples = &mut self.lock().asked.samples;
        if samples.len() >= WAITING {
            samples.remove(0);
        }
        samples.push((category, values, unix, now));
    }

    pub(super) fn bound(&self, bounds: &SamplingConfig) {
        self.lock().asked.bounds = Some(bounds.clone());
    }

    pub(super) fn outages(&self, outages: &Outages) {
        self.lock().asked.outages = Some(outages.clone());
    }

    pub(super) fn block(&self, block: Reservation) {
        self.lock().asked.block = Some(block);
    }

    /// How reserving a block has ended, if it has since the last call.
    pub(super) fn take_block(&self) -> Option<Result<Reserved, SequenceError>> {
        self.lock().kept.block.take()
    }

    /// Certificate and key, as PEM.
    pub(super) fn certificate(&self, both: Zeroizing<String>) {
        let mut shared = self.lock();
        shared.asked.certificate = Some(both);
        shared.certificate_waits = true;
        // Found before this one was issued.
        shared.kept.found = None;
    }

    pub(super) fn registration(&self, registration: &Registration) {
        self.lock().asked.registration = Some(registration.clone());
    }

    pub(super) fn report(&self, of: Diagnostic, at: u64, value: serde_json::Value) {
        let reports = &mut self.lock().asked.reports;
        if reports.len() >= REPORTS {
            reports.remove(0);
        }
        reports.push(Report { of, at, value });
    }

    /// Has a certificate looked for.
    pub(super) fn look_for_certificate(&self, places: Places) {
        self.lock().asked.places = Some(places);
    }

    /// Has the CA file read again.
    pub(super) fn look_at_ca(&self, file: &Path) {
        self.lock().asked.ca = Some(file.to_owned());
    }

    /// What has been done since the last call.
    pub(super) fn take(&self) -> Kept {
        take(&mut self.lock().kept)
    }
}

/// The thread's side.
struct Writer {
    keeper: Keeper,
    state: StateDir,
    status: StatusFile,
    history: History,
    /// For a wish.
    looked: Option<Instant>,
}

impl Writer {
    fn wish(&mut self, now: Instant) -> Option<ServiceWish> {
        let recent = |at: Instant| now.saturating_duration_since(at) < LOOK;
        if self.looked.is_some_and(recent) {
            return None;
        }
        self.looked = Some(now);
        ServiceWish::take(&self.state)
    }
}

impl Collector for Writer {
    fn name(&self) -> &'static str {
        STATE_DIRECTORY
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        // Not under the lock: the directory may hang.
        let asked = take(&mut self.keeper.lock().asked);
        if let Some(bounds) = &asked.bounds {
            self.history.bound(bounds);
        }
        let mut json = asked.status;
        let status = json.as_mut().map(|json| self.status.put(json));
        let history = &mut self.history;
        let samples = asked
            .samples
            .iter()
            .map(|(category, values, unix, now)| history.record(*category, values, *unix, *now))
            .reduce(Result::and);
        let block = asked.block.map(Reservation::make);
        if let Some(outages) = &asked.outages {
            outages.save(&self.state);
        }
        let certificate = asked.certificate.map(|both| {
            let path = self.state.renewed_identity();
            let done = write(&path, both.as_bytes(), 0o600, Replace::Yes, Durability::Synced);
            (both, done)
        });
        let registration = asked.registration.map(|r| {
            let done = r.update(&self.state);
            (r, done)
        });
        let dir = self.state.diagnostics();
        let reports = asked.reports.iter().map(|r| keep(&dir, r.of, r.at, &r.value));
        let reports = reports.map(|done| done.map(drop)).reduce(Result::and);
        let found = asked.places.and_then(Places::find);
        let known = asked.ca.and_then(|file| read_known(&file));
        let wish = self.wish(now);
        let shared = &mut *self.keeper.lock();
        if let Some(json) = json {
            shared.spare = json;
        }
        // What could not be kept waits for the next time, unless there is a newer one by now.
        if let Some((both, done)) = certificate {
            match &done {
                Ok(()) => shared.certificate_waits = shared.asked.certificate.is_some(),
                Err(_) => drop(shared.asked.certificate.get_or_insert(both)),
            }
            shared.kept.certificate = Some(done);
        }
        if let Some((registration, done)) = registration {
            if done.is_err() {
                shared.asked.registration.get_or_insert(registration);
            }
            shared.kept.registration = Some(done);
        }
        // A certificate that waits for the disk is newer than what lies there.
        let found = found.filter(|_| !shared.certificate_waits);
        let kept = &mut shared.kept;
        kept.reports = reports.or(kept.reports.take());
        kept.found = found.or(kept.found.take());
        kept.known = known.or(kept.known.take());
        kept.status = status.or(kept.status.take());
        kept.samples = samples.or(kept.samples.take());
        kept.block = block.or(kept.block.take());
        kept.wish = wish.or(kept.wish.take());
        // The loop waits for these, and for nothing else of what is kept.
        let waits = kept.wish.is_some() || kept.found.is_some() || kept.known.is_some();
        waits.then_some(Reading::Word).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_status_that_was_asked_for_the_newest_lies_there_whole() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let keeper = Keeper::default();
        let mut writer = keeper.attendant(&state, &SamplingConfig::default());
        let of = |findings| Status {
            findings: vec!["finding".to_owned(); findings],
            ..Status::default()
        };
        for findings in [0, 200, 3] {
            keeper.status(&of(7));
            keeper.status(&of(findings));
            writer.collect(Instant::now());
            assert!(matches!(keeper.take().status, Some(Ok(()))));
            assert_eq!(Status::load(&state).unwrap(), Some(of(findings)));
        }
        // Nothing was asked for.
        writer.collect(Instant::now());
        assert!(keeper.take().status.is_none());
        assert_eq!(Status::load(&state).unwrap(), Some(of(3)));
    }

    #[test]
    fn the_ca_file_is_read_when_asked_for_and_one_that_cannot_be_read_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let file = dir.path().join("tls/ca.crt");
        let keeper = Keeper::default();
        let mut writer = keeper.attendant(&state, &SamplingConfig::default());
        let mut read = |asks: bool| {
            if asks {
                keeper.look_at_ca(&file);
            }
            let wakes = !writer.collect(Instant::now()).is_empty();
            let known = keeper.take().known;
            assert_eq!(wakes, known.is_some());
            known.map(|all| all.iter().map(|c| c.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(read(true), None);
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        std::fs::write(&file, pem("AQID") + &pem("BAUG")).unwrap();
        assert_eq!(read(false), None);
        assert_eq!(read(true), Some(vec![vec![1, 2, 3], vec![4, 5, 6]]));
        std::fs::write(&file, "none").unwrap();
        assert_eq!(read(true), Some(Vec::new()));
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(read(true), None);
    }
}
