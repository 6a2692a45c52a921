use std::path::Path;

use super::{INSTANCE, MARK};
use crate::files::at;
use crate::probe::process;
use crate::task::effect::{EffectError, Mark};
use crate::task::host::Host;

/// Clock ticks after boot at which the process was started; none if it is gone or a zombie.
#[must_use]
pub fn start_of(host: &Host, pid: u32) -> Option<u64> {
    started(&host.roots.proc, pid)
}

/// The same, in any tree of processes.
#[must_use]
pub fn started(proc: &Path, pid: u32) -> Option<u64> {
    process::started(&proc.join(pid.to_string()))
}

/// Processes of this user that carry the mark, or a thread of whose parents did: number and start. Anybody can give a
/// process any environment; the mark of another user's process is none.
///
/// # Errors
/// If processes cannot be listed.
pub fn find_marked(host: &Host, mark: &Mark) -> Result<Vec<(u32, u64)>, EffectError> {
    find_marked_of(host, mark, None)
}

/// The same, with those of the user that the effect's process runs as.
///
/// # Errors
/// As [`find_marked`].
pub fn find_marked_of(host: &Host, mark: &Mark, user: Option<u32>) -> Result<Vec<(u32, u64)>, EffectError> {
    let ours = [Some(rustix::process::geteuid().as_raw()), user];
    let (wanted, may) = (mark.to_string(), |uid: u32| ours.contains(&Some(uid)));
    let (mut found, instance) = (marks(host, &may)?, host.dir.instance());
    // Another task domain here, of another cluster, may have a task of the same name. What an earlier version started
    // says no domain.
    found.retain(|m| m.mark == wanted && m.instance.as_ref().is_none_or(|i| *i == instance));
    Ok(found.into_iter().map(|m| (m.pid, m.start)).collect())
}

/// A process that carries a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// Its number.
    pub pid: u32,
    /// Clock ticks after boot.
    pub start: u64,
    /// `task/step`.
    pub mark: String,
    /// Which task domain has started it.
    pub instance: Option<String>,
}

/// Every process with a mark, all of whose ids `may` carry one.
///
/// # Errors
/// If processes cannot be listed.
pub fn marks(host: &Host, may: &dyn Fn(u32) -> bool) -> Result<Vec<Marked>, EffectError> {
    let folder = std::fs::read_dir(&host.roots.proc).map_err(at("read", &host.roots.proc))?;
    let mut found = Vec::new();
    for entry in folder.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        // Gone meanwhile, or of the kernel.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        let value = |name: &str| {
            let mut all = environment.split(|b| *b == 0);
            let value = all.find_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        if let Some(mark) = value(MARK)
            && ids_of(&entry.path()).is_some_and(|ids| ids.iter().all(|id| may(*id)))
            && let Some(start) = start_of(host, pid)
        {
            found.push(Marked {
                pid,
                start,
                mark,
                instance: value(INSTANCE),
            });
        }
    }
    Ok(found)
}

/// The four user ids of a process: real, effective, saved, of the file system. All of them count: a program with rights
/// of its owner runs with the environment of whoever started it.
fn ids_of(process: &Path) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    let ids: Vec<u32> = line
        .split_ascii_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    (ids.len() == 4).then_some(ids)
}

/// Whether this very process lives.
#[must_use]
pub fn is_alive(host: &Host, pid: u32, start: u64) -> bool {
    start_of(host, pid) == Some(start)
}
