//! Orders for another version of this program, and the proof that a new one works.

use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::command::UpdateAgent;
use semver::Version;

use super::Agent;
use super::orders::Begun;
use crate::command::{Entry, Outcome, Update, Work};
use crate::fault;
use crate::update::{Order, Versions};

/// Between two looks whether a new version has proven itself.
const LOOK: Duration = Duration::from_secs(5);

impl Agent {
    pub(super) fn begin_update(&self, entry: &Entry, wanted: &UpdateAgent, now: u64) -> Begun {
        let Some(key) = self.config.update.release_key.clone() else {
            let text = "no release key is configured on this node (update.release_key); install the new version there";
            return Begun::Ended(Outcome::refused(now, Code::WrongMode, text));
        };
        let Ok(version) = Version::parse(&wanted.version) else {
            let text = format!("version {:?} is no semantic version", wanted.version);
            return Begun::Ended(Outcome::refused(now, Code::InvalidField, &text));
        };
        let present = &self.running.version;
        if version == *present {
            return match self.trial {
                None => Begun::Ended(Outcome::done(now, &format!("version {present} runs"))),
                Some(_) => Begun::Later(LOOK),
            };
        }
        if version < *present {
            let text = format!("version {version} is not newer than {present}, which runs");
            return Begun::Ended(Outcome::refused(now, Code::InvalidState, &text));
        }
        let versions = Versions::new(self.state.versions());
        // Begun before: it was to run next, and has been taken back since.
        let failed = versions.load().ok().and_then(|s| s.failed);
        if let Some(failed) = failed.filter(|f| f.version == version && entry.attempts > 0) {
            let text = format!(
                "version {version} was taken back, {present} runs: {}",
                failed.reason
            );
            return Begun::Ended(Outcome::failed(now, &text));
        }
        Begun::OnThread(Work::Update(Box::new(Update {
            order: Order {
                version,
                url: wanted.url.clone(),
                sha256: wanted.sha256.clone(),
            },
            key,
            ca_file: self.config.update.ca_file.clone(),
            versions,
            present: present.clone(),
        })))
    }

    /// A gateway has accepted a heartbeat of this version.
    pub(super) fn prove(&mut self) {
        if self.trial.is_none() {
            return;
        }
        let versions = Versions::new(self.state.versions());
        let prove = move || {
            let mut state = versions.load()?;
            if let Some(current) = state.current.as_mut() {
                current.proven = true;
            }
            versions.save(&state)?;
            fault::point("update.proven");
            versions.tidy(&state)?;
            fault::point("update.tidied");
            Ok(())
        };
        // With the next one, where the directory does not answer.
        match self.keep_now(("trial", &()), prove) {
            Ok(()) => {
                tracing::info!(version = %self.running.version, "this version has proven itself");
                self.trial = None;
            }
            Err(e) => self.warn_once("trial", &format!("cannot write that this version works: {e}")),
        }
    }
}
