//! What became of each order, so that none is carried out twice, whatever is killed. Pure but for load and save.

mod entry;
mod hear;

use std::io::ErrorKind;

use hpc_schema::code::Code;
use hpc_schema::command::{Command, CommandType};
use serde::{Deserialize, Serialize};

use entry::Heard;
pub use entry::{Entry, OrderedDrain, Taken};

use super::outcome::Outcome;
use crate::files::{Durability, FileError, Replace, at, write};
use crate::state::{StateDir, read_json, write_json};

/// Orders kept; a node has at most 16 that wait.
const LIMIT: usize = 128;
/// An order is remembered this long after its deadline: the clock may be set back.
const REMEMBERED: u64 = 24 * 3600;

/// The orders of this node.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// UNIX seconds since which orders are written down.
    since: u64,
    /// The provider's drain, while it is in force here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<OrderedDrain>,
    /// Oldest first.
    #[serde(default)]
    entries: Vec<Entry>,
}

impl Journal {
    /// Nothing yet.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// As kept; a new one if there is none.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir, now: u64) -> Result<Self, FileError> {
        Ok(read_json(&state.orders())?.unwrap_or_else(|| Self::new(now)))
    }

    /// Makes one that begins now, if there is none.
    ///
    /// # Errors
    /// IO.
    pub fn create(state: &StateDir, now: u64) -> Result<(), FileError> {
        let path = state.orders();
        let mut bytes = serde_json::to_vec(&Self::new(now)).map_err(|e| at("write", &path)(e.into()))?;
        bytes.push(b'\n');
        match write(&path, &bytes, 0o640, Replace::Never, Durability::Synced) {
            Err(e) if e.source.kind() == ErrorKind::AlreadyExists => Ok(()),
            written => written,
        }
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.orders(), self, 0o640, Durability::Synced)
    }

    /// Newest last.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Takes an order whose signature is good.
    pub fn take(&mut self, command: &Command, kind: CommandType, now: u64) -> Taken {
        let deadline = command.deadline.seconds().0;
        if let Some(known) = self.find(&command.command_id) {
            // The provider's drain is told as long as it lasts.
            known.deadline = known.deadline.max(deadline);
            known.heard = Heard::Nothing;
            return Taken::Known;
        }
        self.entries
            .retain(|e| e.deadline.saturating_add(REMEMBERED) >= now);
        if self.entries.len() >= LIMIT && !self.evict() {
            return Taken::Full;
        }
        let issued_at = command.issued_at.seconds().0;
        let mut entry = Entry {
            command_id: command.command_id.clone(),
            kind,
            parameters: command.parameters.get().to_owned(),
            issued_at,
            deadline,
            taken_at: now,
            attempts: 0,
            boot: None,
            outcome: None,
            heard: Heard::Nothing,
        };
        if turns(kind) {
            // The last word counts, in whatever order they arrive.
            if self
                .entries
                .iter()
                .any(|e| turns(e.kind) && e.issued_at > issued_at)
            {
                entry.outcome = Some(superseded(now));
            } else {
                for older in self.entries.iter_mut().filter(|e| turns(e.kind)) {
                    older.outcome.get_or_insert_with(|| superseded(now));
                }
            }
        } else if kind != CommandType::RunDiagnostic && issued_at < self.since {
            // Whether it was carried out is not known any more; once too few is better than once too many.
            let text = "was issued before this agent's journal of orders begins; send it again";
            entry.outcome = Some(Outcome::refused(now, Code::InvalidState, text));
        }
        self.entries.push(entry);
        Taken::New
    }

    /// Forgets the finished order that is missed least; false if none has finished. A new one must not be lost for it.
    fn evict(&mut self) -> bool {
        // By the last word on draining, older ones are known to be old.
        let last_word = self.entries.iter().filter(|e| turns(e.kind)).map(|e| e.issued_at);
        let last_word = last_word.max();
        let finished = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.outcome.is_some() && !(turns(e.kind) && Some(e.issued_at) == last_word));
        let least = finished.min_by_key(|(n, e)| {
            let diagnostic = e.kind == CommandType::RunDiagnostic;
            (!diagnostic, e.heard != Heard::Outcome, *n)
        });
        let Some(n) = least.map(|(n, _)| n) else {
            return false;
        };
        let gone = self.entries.remove(n);
        if !turns(gone.kind) && gone.kind != CommandType::RunDiagnostic {
            // Told again, it is not known as carried out any more: too old from now on.
            self.since = self.since.max(gone.issued_at.saturating_add(1));
        }
        true
    }

    /// The order that is to be carried out next, of those that are `ready`: drain and resume before all others, the
    /// oldest of the others, a shutdown after all of them but updates: a download may take long.
    #[must_use]
    pub fn next(&self, ready: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        let open = || self.entries.iter().filter(|e| e.outcome.is_none());
        let waits = open().any(|e| !matches!(e.kind, CommandType::Shutdown | CommandType::UpdateAgent));
        open()
            .filter(|e| (e.kind != CommandType::Shutdown || !waits) && ready(e))
            .min_by_key(|e| {
                let last = e.kind == CommandType::Shutdown;
                (!turns(e.kind), last, e.issued_at, e.taken_at)
            })
    }

    /// It is begun, or begun again.
    pub fn begin(&mut self, command_id: &str) {
        if let Some(entry) = self.find(command_id) {
            entry.attempts = entry.attempts.saturating_add(1);
        }
    }

    /// It ends this boot of the host.
    pub fn begin_in(&mut self, command_id: &str, boot: Option<String>) {
        if let Some(entry) = self.find(command_id) {
            entry.boot = boot;
        }
    }

    /// It has ended. The first outcome stays.
    pub fn finish(&mut self, command_id: &str, outcome: Outcome) {
        if let Some(entry) = self.find(command_id) {
            entry.outcome.get_or_insert(outcome);
        }
    }

    fn find(&mut self, command_id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.command_id == command_id)
    }
}

/// Whether the order says if the node takes work.
fn turns(kind: CommandType) -> bool {
    matches!(kind, CommandType::Drain | CommandType::Resume)
}

fn superseded(now: u64) -> Outcome {
    Outcome::refused(now, Code::InvalidState, "a later drain or resume replaces it")
}

#[cfg(test)]
mod tests;
