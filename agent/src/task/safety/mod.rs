//! The safety loop: what lies on the host against what the journals say should be. What carries our mark and is in no
//! journal is an orphan: reported, set aside, and taken away, as far as the site's policy goes. Without a mark nothing is
//! touched.

mod act;
mod found;
mod look;
mod should;
mod steward;

use serde::{Deserialize, Serialize};

use act::{is_movable, kept_at, settle};
pub use act::{remove, set_aside};
pub use found::{Found, Kind};
pub use look::look;
pub use should::{Should, Verdict};
pub use steward::Safety;

use super::host::{Host, TaskDir};
use super::ledger::{Ledger, Residue};
use crate::files::FileError;
use crate::state::{read_json, write_json};

/// How an orphan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It was seen; nothing was done.
    Seen,
    /// It can do nothing any more.
    SetAside,
}

/// Something that is ours and that no journal knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// What it is.
    #[serde(flatten)]
    pub found: Found,
    /// UNIX seconds.
    pub since: u64,
    /// How it stands.
    pub standing: Standing,
    /// UNIX seconds since when it is set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<u64>,
    /// Why it could not be set aside or taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What one look has found. No secret is in it: the heartbeat and people read it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// UNIX seconds of the look.
    pub at: u64,
    /// What is ours and in no journal.
    pub orphans: Vec<Orphan>,
    /// What may be a task's whose journal cannot be read: not touched.
    pub unclear: Vec<Found>,
    /// What tasks have left that could not be undone up to now.
    pub left: Vec<String>,
    /// Journals that cannot be read.
    pub damaged: Vec<String>,
    /// What is held by a journal and not on the host any more.
    pub missing: Vec<String>,
}

impl Report {
    /// Whether all is as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self {
            at: _,
            orphans,
            unclear,
            left,
            damaged,
            missing,
        } = self;
        orphans.is_empty()
            && unclear.is_empty()
            && left.is_empty()
            && damaged.is_empty()
            && missing.is_empty()
    }

    /// The last one that was written; none if there is none.
    ///
    /// # Errors
    /// IO, form.
    pub fn load(dir: &TaskDir) -> Result<Option<Self>, FileError> {
        read_json(&dir.safety())
    }

    /// Writes it for others.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, dir: &TaskDir) -> Result<(), FileError> {
        write_json(&dir.safety(), self, 0o644, crate::files::Durability::Atomic)
    }
}

/// Looks at all; what was an orphan `before` keeps its age.
#[must_use]
pub fn judge(host: &Host, ledger: &Ledger, before: &Report) -> Report {
    // What is found is looked for first: whatever is made meanwhile was written down before.
    let found = look(host);
    let should = Should::of(ledger);
    let now = host.clock.seconds();
    let mut report = Report {
        at: now,
        left: ledger.residues().iter().flat_map(shown).collect(),
        damaged: ledger.damaged().values().cloned().collect(),
        missing: missing(host, ledger),
        ..Report::default()
    };
    // What lies aside is not where it was any more.
    for orphan in &before.orphans {
        let aside = orphan.standing == Standing::SetAside && is_movable(host, &orphan.found);
        if aside && std::fs::symlink_metadata(kept_at(host, orphan)).is_ok() {
            report.orphans.push(orphan.clone());
        }
    }
    // What a task has taken away meanwhile was known when it was seen.
    let strange = found.iter().any(|f| should.of_this(f) != Verdict::Known);
    let still = if strange { look(host) } else { Vec::new() };
    for found in found {
        let verdict = should.of_this(&found);
        if verdict != Verdict::Known && !still.contains(&found) {
            continue;
        }
        match verdict {
            Verdict::Known => {}
            Verdict::Unclear => report.unclear.push(found),
            Verdict::Orphan => {
                let same = |o: &&Orphan| {
                    o.found == found && !(o.standing == Standing::SetAside && is_movable(host, &found))
                };
                let known = before.orphans.iter().find(same).cloned();
                report.orphans.push(known.unwrap_or(Orphan {
                    found,
                    since: now,
                    standing: Standing::Seen,
                    set_aside: None,
                    trouble: None,
                }));
            }
        }
    }
    report
}

/// Goes as far as the site's policy does with what was seen twice.
pub fn act(host: &Host, report: &mut Report) {
    settle(host, report);
}

fn shown(residue: &Residue) -> Vec<String> {
    let of = |what: &String| format!("task {}: {what}", residue.task_id);
    residue.findings.iter().map(of).collect()
}

/// What completed tasks have made and is gone, or another's. Machines that end are taken away by who looks after them.
fn missing(host: &Host, ledger: &Ledger) -> Vec<String> {
    use super::effect::{Effect, Seen};
    let mut all = Vec::new();
    for holding in ledger.held("") {
        let Ok(seen) = ledger.observe(host, &holding) else {
            all.push(format!("{}: it cannot be looked at", holding.owner));
            continue;
        };
        for ((_, effect, _), (_, seen)) in holding.effects.iter().zip(seen) {
            let what = effect.act().shown();
            match (effect, seen) {
                // It rests where it is handed through from; anywhere else it is not the machine's any more.
                (Effect::Passthrough(_), Seen::Absent) => {}
                (Effect::Passthrough(_), Seen::Ours) => {
                    all.push(format!("{}: {what} is not with vfio-pci", holding.owner));
                }
                // A disk that nobody has written to is there all the same.
                (Effect::Disk(_), Seen::Absent) => {}
                (_, Seen::Ours) | (Effect::Machine(_) | Effect::Process(_), _) => {}
                (_, Seen::Absent) => all.push(format!("{}: {what} is gone", holding.owner)),
                (_, Seen::Foreign(why)) => all.push(format!("{}: {why}", holding.owner)),
            }
        }
    }
    all
}
