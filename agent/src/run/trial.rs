//! Orders for another version of this program, and the proof that a new one works.

use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::command::UpdateAgent;
use semver::Version;

use super::Agent;
use super::orders::Begun;
use crate::clock::instant;
use crate::command::{Entry, Outcome, Update, Work};
use crate::state::StateDir;
use crate::update::{Order, Running, Versions};

/// Between two looks whether a new version has proven itself.
const LOOK: Duration = Duration::from_secs(5);

/// Until when this version must have proven itself; none if it has, or is the installed program.
pub(super) fn until(state: &StateDir, running: &Running, patience: Duration) -> Option<Instant> {
    let state = Versions::new(state.versions()).load().ok()?;
    let unproven = running.fetched
        && state
            .current
            .is_some_and(|c| c.version == running.version && !c.proven);
    if unproven {
        instant().checked_add(patience)
    } else {
        None
    }
}

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
        let proven = versions.load().and_then(|mut state| {
            if let Some(current) = state.current.as_mut() {
                current.proven = true;
            }
            versions.save(&state)?;
            versions.tidy(&state)
        });
        match proven {
            Ok(()) => {
                tracing::info!(version = %self.running.version, "this version has proven itself");
                self.trial = None;
            }
            Err(e) => self.warn_once("trial", &format!("cannot write that this version works: {e}")),
        }
    }
}
