//! What is written into the state directory beside orders and the record of service, by the thread of the collectors:
//! where the directory hangs, the loop does not. Certificate and registration are tried again until they are kept.

use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::anew::{Anew, Watch};
use super::asked::{Asked, Kept, Report};
use super::identity::Places;
use crate::command::{Diagnostic, keep};
use crate::config::SamplingConfig;
use crate::files::{Durability, FileError, Replace, write};
use crate::history::{History, Values};
use crate::probe::slurm::LastWord;
use crate::sample::{Category, Collector, Reading};
use crate::sequence::{Reservation, Reserved, SequenceError};
use crate::state::{Outages, Registration, ServiceWish, StateDir, Status, StatusFile};
use crate::uplink::{Trust, certificates, read_known, to_pem};

/// Its name, as of a collector.
pub(super) const STATE_DIRECTORY: &str = "state directory";
/// Samples that wait for a directory that does not answer; the oldest go.
const WAITING: usize = 64;
/// Reports that wait for it; the oldest go.
const REPORTS: usize = 8;
/// Between two looks for a person's wish: one wake-up writes more than once.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Shared {
    asked: Asked,
    kept: Kept,
    /// A certificate is in use that the disk does not hold yet.
    certificate_waits: bool,
    /// What the agent goes by: a registration on the disk that takes its place is looked for.
    present: Option<Arc<Places>>,
    /// What Slurm said when that was asked for last.
    slurm: Option<LastWord>,
    /// The disk does not hold it yet.
    slurm_waits: bool,
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
            watch: Watch::default(),
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

    /// Whether that is news, which is to be kept.
    pub(super) fn slurm(&self, word: LastWord) -> bool {
        let mut shared = self.lock();
        let news = !shared.slurm.as_ref().is_some_and(|last| last.is_as(&word));
        if news {
            shared.asked.slurm = Some(word.clone());
            shared.slurm = Some(word);
            shared.slurm_waits = true;
        }
        news
    }

    /// Whether the disk does not hold yet what Slurm said last.
    pub(super) fn slurm_waits(&self) -> bool {
        self.lock().slurm_waits
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

    /// What the CA file is to hold, PEM, in place of what was asked for before; nothing: it stays as it is.
    pub(super) fn ca(&self, file: &Path, pem: String) {
        self.lock().asked.trusted = (!pem.is_empty()).then(|| (file.to_owned(), pem));
    }

    /// What the agent goes by from here on.
    pub(super) fn goes_by(&self, places: Places) {
        let mut shared = self.lock();
        shared.present = Some(Arc::new(places));
        // Whoever has registered the node anew has forgotten it.
        shared.slurm = None;
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
    watch: Watch,
    /// For a wish, and for another registration.
    looked: Option<Instant>,
}

impl Writer {
    /// What another process has left here: a person's wish, another registration.
    fn left_here(&mut self, now: Instant) -> (Option<ServiceWish>, Option<Anew>) {
        let recent = |at: Instant| now.saturating_duration_since(at) < LOOK;
        if self.looked.is_some_and(recent) {
            return (None, None);
        }
        self.looked = Some(now);
        let present = self.keeper.lock().present.clone();
        let anew = present.and_then(|p| self.watch.look(&p));
        (ServiceWish::take(&self.state), anew)
    }

    /// Writes the CA file, unless another process has registered this node anew: it is of that registration then. What the
    /// registration on the disk trusts stays in it.
    fn put_ca(&self, file: &Path, pem: &str) -> Option<Result<(), FileError>> {
        let put = |found: Option<&Registration>| {
            let held = found.map(|r| Trust::new(r.pins(), file).certificates());
            let new = certificates(pem);
            let mut rest = held.unwrap_or_default();
            rest.retain(|c| !new.contains(c));
            let all = pem.to_owned() + &to_pem(&rest);
            write(file, all.as_bytes(), 0o644, Replace::Yes, Durability::Synced)
        };
        let present = self.keeper.lock().present.clone();
        match present {
            Some(present) => present.registration.unless_replaced(&self.state, put).transpose(),
            None => Some(put(None)),
        }
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
        let slurm = asked.slurm.map(|word| {
            let done = word.keep(&self.state.slurm());
            (word, done)
        });
        // First the CAs beside the former ones, then the registration that trusts them, last the certificate that came with
        // both: cut off between, the next start has the former certificate, which is due, and is told once more whom to trust.
        let trusted = asked.trusted.and_then(|(file, pem)| {
            let done = self.put_ca(&file, &pem)?;
            Some(((file, pem), done))
        });
        let registration = asked.registration.map(|r| {
            let done = r.update(&self.state);
            (r, done)
        });
        // The former ones go.
        let trusted = trusted.map(|((file, pem), done)| {
            let updated = matches!(registration, Some((_, Ok(()))));
            let again = done.is_ok() && updated;
            let done = if again {
                self.put_ca(&file, &pem).unwrap_or(Ok(()))
            } else {
                done
            };
            ((file, pem), done)
        });
        let certificate = asked.certificate.map(|both| {
            let path = self.state.renewed_identity();
            let done = write(&path, both.as_bytes(), 0o600, Replace::Yes, Durability::Synced);
            (both, done)
        });
        let dir = self.state.diagnostics();
        let reports = asked.reports.iter().map(|r| keep(&dir, r.of, r.at, &r.value));
        let reports = reports.map(|done| done.map(drop)).reduce(Result::and);
        let found = asked.places.and_then(Places::find);
        let known = asked.ca.and_then(|file| read_known(&file));
        let (wish, anew) = self.left_here(now);
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
        if let Some((word, done)) = slurm {
            match &done {
                Ok(()) => shared.slurm_waits = shared.asked.slurm.is_some(),
                Err(_) => drop(shared.asked.slurm.get_or_insert(word)),
            }
            shared.kept.slurm = Some(done);
        }
        if let Some((trusted, done)) = trusted {
            if done.is_err() {
                shared.asked.trusted.get_or_insert(trusted);
            }
            shared.kept.ca = Some(done);
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
        kept.anew = anew.or(kept.anew.take());
        // The loop waits for these, and for nothing else of what is kept.
        let files = kept.found.is_some() || kept.known.is_some();
        let waits = kept.wish.is_some() || kept.anew.is_some() || files;
        waits.then_some(Reading::Word).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::config::{parse, resolve};
    use crate::key::NodeKey;
    use crate::probe::slurm::SlurmConfig;
    use crate::state::{Lock, a_registration};
    use crate::uplink::{CaPin, ca};

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
    fn what_slurm_said_last_is_kept_where_it_is_news_and_tried_again_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let keeper = Keeper::default();
        let mut writer = keeper.attendant(&state, &SamplingConfig::default());
        let mut kept = || {
            writer.collect(Instant::now());
            keeper.take().slurm.map(|done| done.is_ok())
        };
        let there = || LastWord::remembered(&state.slurm(), &SlurmConfig::default());
        let word = |cpus| LastWord { cpus, drained: None };
        assert!(!keeper.slurm_waits());
        assert!(keeper.slurm(word(Some(64))));
        assert!(keeper.slurm_waits());
        assert_eq!((kept(), there()), (Some(true), word(Some(64))));
        assert!(!keeper.slurm_waits());
        assert!(!keeper.slurm(word(Some(64))));
        assert_eq!(kept(), None);
        // The file cannot be removed.
        std::fs::remove_file(state.slurm()).unwrap();
        std::fs::create_dir(state.slurm()).unwrap();
        assert!(keeper.slurm(word(None)));
        assert_eq!((kept(), kept()), (Some(false), Some(false)));
        assert!(keeper.slurm_waits());
        std::fs::remove_dir(state.slurm()).unwrap();
        assert_eq!((kept(), kept()), (Some(true), None));
        assert!(!keeper.slurm_waits());
    }

    #[test]
    fn what_a_new_registration_has_forgotten_of_slurm_is_kept_again_while_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let key = NodeKey::from_seed([1; 32]).unwrap().public();
        let (keeper, mut writer) = going_by(&state, &a_registration("token-1", key, 7));
        let word = LastWord {
            cpus: Some(64),
            drained: None,
        };
        for epoch in [8, 9] {
            assert!(keeper.slurm(word.clone()));
            writer.collect(Instant::now());
            assert!(state.slurm().exists());
            state.forget_devices();
            keeper.goes_by(places(&state, &a_registration("token-2", key, epoch)));
        }
    }

    #[test]
    fn of_the_cas_that_are_to_be_kept_the_newest_lie_there_and_none_empties_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let file = dir.path().join("ca.crt");
        std::fs::write(&file, "registered").unwrap();
        let keeper = Keeper::default();
        let mut writer = keeper.attendant(&state, &SamplingConfig::default());
        keeper.ca(&file, "former".to_owned());
        keeper.ca(&file, String::new());
        writer.collect(Instant::now());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "registered");
        keeper.ca(&file, "former".to_owned());
        keeper.ca(&file, "newest".to_owned());
        writer.collect(Instant::now());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "newest");
        assert!(matches!(keeper.take().ca, Some(Ok(()))));
    }

    fn places(state: &StateDir, registration: &Registration) -> Places {
        let text = "provider_daemon: {endpoint: 'https://gateway:8443'}";
        Places {
            config: resolve(parse(text, Path::new("config.yaml")).unwrap()).unwrap(),
            state: state.clone(),
            registration: registration.clone(),
        }
    }

    /// An agent that goes by this registration, which lies in the state directory.
    fn going_by(state: &StateDir, registration: &Registration) -> (Keeper, Box<dyn Collector>) {
        state.create().unwrap();
        registration.save(state).unwrap();
        let keeper = Keeper::default();
        keeper.goes_by(places(state, registration));
        let writer = keeper.attendant(state, &SamplingConfig::default());
        (keeper, writer)
    }

    #[test]
    fn the_ca_file_keeps_what_the_registration_on_the_disk_trusts_until_that_trusts_others() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let key = NodeKey::from_seed([1; 32]).unwrap().public();
        let [former, next] = [ca(), ca()].map(|c| c.der().clone());
        let of = |trusted: &CertificateDer<'static>| Registration {
            trusted: vec![CaPin::of(trusted)],
            ..a_registration("token-1", key, 7)
        };
        let (keeper, mut writer) = going_by(&state, &of(&former));
        let file = dir.path().join("ca.crt");
        std::fs::write(&file, to_pem(std::slice::from_ref(&former))).unwrap();
        let pem = to_pem(std::slice::from_ref(&next));
        let mut kept = || {
            writer.collect(Instant::now());
            certificates(&std::fs::read_to_string(&file).unwrap())
        };
        keeper.ca(&file, pem.clone());
        assert_eq!(kept(), [next.clone(), former]);
        keeper.ca(&file, pem);
        keeper.registration(&of(&next));
        assert_eq!(kept(), [next]);
        assert_eq!(keeper.take().ca.map(|done| done.is_ok()), Some(true));
    }

    #[test]
    fn the_ca_file_is_left_to_a_process_that_registers_and_to_the_registration_that_it_has_written() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let key = NodeKey::from_seed([1; 32]).unwrap().public();
        let ours = a_registration("token-1", key, 7);
        let (keeper, mut writer) = going_by(&state, &ours);
        let file = dir.path().join("ca.crt");
        let mut kept = || {
            writer.collect(Instant::now());
            let done = keeper.take().ca.map(|done| done.is_ok());
            (done, std::fs::read_to_string(&file).unwrap())
        };
        let of = |done, held: &str| (done, held.to_owned());
        std::fs::write(&file, "registered").unwrap();
        keeper.ca(&file, "ours".to_owned());
        // A child of another test may hold it for a moment.
        let registers = Lock::take_within(&dir.path().join("registration.lock"), Duration::from_secs(10))
            .unwrap()
            .unwrap();
        assert_eq!(kept(), of(Some(false), "registered"));
        drop(registers);
        // Nothing came of it: the same registration, as the gateway has changed it.
        Registration {
            last_sequence: 9,
            ..ours
        }
        .save(&state)
        .unwrap();
        assert_eq!(kept(), of(Some(true), "ours"));
        for (jti, epoch, registered_at, replaces) in [
            ("token-1", 8, 7, true),
            ("token-2", 7, 8, true),
            ("token-1", 7, 8, false),
            ("token-2", 7, 7, false),
        ] {
            let found = Registration {
                registered_at,
                ..a_registration(jti, key, epoch)
            };
            found.save(&state).unwrap();
            std::fs::write(&file, "registered").unwrap();
            keeper.ca(&file, "ours".to_owned());
            let expected = if replaces {
                of(None, "registered")
            } else {
                of(Some(true), "ours")
            };
            assert_eq!(kept(), expected, "{jti} {epoch} {registered_at}");
            assert_eq!(kept().0, None, "it is not tried again");
        }
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
