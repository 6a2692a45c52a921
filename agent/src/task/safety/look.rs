//! What of ours lies on the host: by mark, or in folders that are ours alone. Changes nothing.

use std::path::{Path, PathBuf};

use super::{Found, Kind};
use crate::files::read_text;
use crate::machine::cgroup::MACHINES;
use crate::probe::names_in;
use crate::task::effect::process::marks;
use crate::task::host::Host;
use crate::task::user;
use crate::task::users::entries;

/// Everything of ours, in order.
#[must_use]
pub fn look(host: &Host) -> Vec<Found> {
    let mut all = Vec::new();
    let instance = host.dir.instance();
    // A list that cannot be read has no orphans to tell of.
    let users = entries(&host.roots.etc).unwrap_or_default();
    let machines = host.dir.machines();
    for path in paths_in(&machines) {
        let kind = if path.is_dir() { Kind::Machine } else { Kind::Lease };
        if !is_unfinished(&path) {
            all.push(Found::placed(kind, path.display().to_string()));
        }
    }
    for path in paths_in(&host.dir.path().join("leases")) {
        all.push(Found::placed(Kind::Lease, path.display().to_string()));
    }
    for folder in folders(host) {
        all.extend(paths_in(&folder).iter().filter_map(|p| unfinished(p)));
    }
    for path in paths_in(&limits(host)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Those of a user that is there are that user's, whoever has made it.
        let user = name
            .strip_prefix("90-virtengine-")
            .and_then(|n| n.strip_suffix(".conf"));
        if user.is_some_and(|user| !users.is_empty() && users.iter().all(|u| u.name != user)) {
            all.push(Found::placed(Kind::Limits, path.display().to_string()));
        }
    }
    all.extend(processes(host));
    all.extend(groups(&host.roots.sys.join("fs/cgroup"), &format!("{instance}-")));
    for user in &users {
        let mark = user.comment.strip_prefix("virtengine ");
        let mark = mark.and_then(|m| m.strip_suffix(&instance)?.strip_suffix('@'));
        all.extend(mark.and_then(|m| Found::marked(Kind::User, &user.name, m)));
    }
    all.extend(mounts(host));
    all.sort();
    all
}

/// Folders in which effects make things under names of ours first.
fn folders(host: &Host) -> Vec<PathBuf> {
    let homes = host.policy.users.home.as_ref().map_or("/home", |h| h.as_str());
    vec![
        host.dir.machines(),
        host.dir.path().join("leases"),
        PathBuf::from(homes),
        limits(host),
    ]
}

fn limits(host: &Host) -> PathBuf {
    host.roots.etc.join("security/limits.d")
}

fn paths_in(folder: &Path) -> Vec<PathBuf> {
    names_in(folder).iter().map(|n| folder.join(n)).collect()
}

fn is_unfinished(path: &Path) -> bool {
    unfinished(path).is_some()
}

/// `.ve-<task>-<step>.new`, as effects name what has no name yet.
fn unfinished(path: &Path) -> Option<Found> {
    let name = path.file_name()?.to_str()?;
    let (task, step) = name
        .strip_prefix(".ve-")?
        .strip_suffix(".new")?
        .rsplit_once('-')?;
    Found::marked(
        Kind::Unfinished,
        path.display().to_string(),
        &format!("{task}/{step}"),
    )
}

/// Processes of ours, or of a machine's user, that carry a mark.
fn processes(host: &Host) -> Vec<Found> {
    let bounds = &host.policy.machines;
    let named = bounds.user.as_deref();
    let named = named.and_then(|u| user::find(&host.roots.etc, u).ok().flatten());
    let named = named.map(|(uid, _)| uid);
    let ours = rustix::process::geteuid().as_raw();
    let may =
        |uid: u32| uid == ours || Some(uid) == named || (bounds.min_uid..=bounds.max_uid).contains(&uid);
    let (all, instance) = (marks(host, &may).unwrap_or_default(), host.dir.instance());
    all.into_iter()
        .filter(|m| m.instance.as_ref() == Some(&instance))
        .filter_map(|m| Found::marked(Kind::Process, format!("{}@{}", m.pid, m.start), &m.mark))
        .collect()
}

/// Control groups of this task domain's machines, in every hierarchy.
fn groups(root: &Path, ours: &str) -> Vec<Found> {
    let hierarchies = ["", "memory", "cpu", "pids"];
    let mut all: Vec<Found> = hierarchies
        .iter()
        .flat_map(|h| paths_in(&root.join(h).join(MACHINES)))
        .filter(|p| {
            p.is_dir()
                && p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with(ours))
        })
        .map(|p| Found::placed(Kind::ControlGroup, p.display().to_string()))
        .collect();
    all.dedup();
    all
}

/// Mounts below our folder: nothing of ours makes one.
fn mounts(host: &Host) -> Vec<Found> {
    let text = read_text(&host.roots.proc.join("self/mountinfo"), 16 << 20).unwrap_or_default();
    text.lines()
        .filter_map(|l| l.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|p| p.starts_with(host.dir.path()) && p != host.dir.path())
        .map(|p| Found::placed(Kind::Mount, p.display().to_string()))
        .collect()
}
