//! What of ours lies on the host: by mark, or in folders that are ours alone. Changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::task::NodeMode;

use super::{Found, Kind};
use crate::files::read_text;
use crate::machine::cgroup::MACHINES;
use crate::probe::names_in;
use crate::probe::tool::find;
use crate::slice::libvirt::Libvirt;
use crate::slice::mark;
use crate::task::effect::process::marks;
use crate::task::host::Host;
use crate::task::stop::Stop;
use crate::task::user;
use crate::task::users::entries;

/// How long libvirt may take to say what there is.
const LOOKING: Duration = Duration::from_secs(30);

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
    for path in paths_in(&host.dir.slices()) {
        if !is_unfinished(&path) {
            all.push(Found::placed(Kind::Slice, path.display().to_string()));
        }
    }
    all.extend(slices(host));
    for path in paths_in(&host.dir.path().join("leases")) {
        all.push(Found::placed(Kind::Lease, path.display().to_string()));
    }
    for folder in folders(host) {
        all.extend(paths_in(&folder).iter().filter_map(|p| unfinished(host, p)));
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
    // Folders of ours may be one: of reservations and targets, say.
    all.dedup();
    all
}

/// Folders in which effects make things under names of ours first.
fn folders(host: &Host) -> Vec<PathBuf> {
    let homes = host.policy.users.home.as_ref().map_or("/home", |h| h.as_str());
    let slices = &host.policy.slices;
    let shared = [&slices.dhcp_hosts, &slices.telemetry];
    let mut all = vec![
        host.dir.machines(),
        host.dir.slices(),
        host.dir.path().join("leases"),
        PathBuf::from(homes),
        limits(host),
    ];
    all.extend(shared.into_iter().flatten().map(|f| PathBuf::from(f.as_str())));
    let images = host.policy.machines.image_directories.iter();
    all.extend(images.map(|f| PathBuf::from(f.as_str())));
    all.extend(paths_in(&host.dir.slices()).into_iter().filter(|p| p.is_dir()));
    all
}

/// What slices' machines have among things of others: domains, reservations, targets. Their marks alone count.
fn slices(host: &Host) -> Vec<Found> {
    let (instance, tag, slices) = (host.dir.instance(), host.dir.tag(), &host.policy.slices);
    let mut all = Vec::new();
    for (kind, folder) in [
        (Kind::Reservation, &slices.dhcp_hosts),
        (Kind::Target, &slices.telemetry),
    ] {
        for path in folder.iter().flat_map(|f| paths_in(Path::new(f.as_str()))) {
            let marked = mark::in_file(&path, &tag);
            all.extend(marked.and_then(|m| Found::marked(kind, path.display().to_string(), &m)));
        }
    }
    if let Some(libvirt) = libvirt(host) {
        // Where libvirt does not answer there is nothing to tell of.
        let domains = libvirt.described(&Stop::after(LOOKING)).unwrap_or_default();
        for (uuid, words) in domains {
            all.extend(mark::of(&words, &instance).and_then(|m| Found::marked(Kind::Domain, &uuid, m)));
        }
    }
    all
}

/// libvirt, on a node that is let in slices and has it.
pub(super) fn libvirt(host: &Host) -> Option<Libvirt> {
    if host.policy.mode != Some(NodeMode::Slice) {
        return None;
    }
    let folder = host.policy.machines.programs.as_ref();
    let virsh = find("virsh", folder.map(|f| Path::new(f.as_str())))?;
    Some(Libvirt::new(&virsh))
}

fn limits(host: &Host) -> PathBuf {
    host.roots.etc.join("security/limits.d")
}

fn paths_in(folder: &Path) -> Vec<PathBuf> {
    names_in(folder).iter().map(|n| folder.join(n)).collect()
}

fn is_unfinished(path: &Path) -> bool {
    new_name(path).is_some()
}

/// What stands between `.ve-` and `.new`, as effects name what has no name yet.
fn new_name(path: &Path) -> Option<&str> {
    path.file_name()?
        .to_str()?
        .strip_prefix(".ve-")?
        .strip_suffix(".new")
}

/// `<tag>-<task>-<step>`. Earlier versions wrote no tag: that is ours only where nobody else makes anything.
fn unfinished(host: &Host, path: &Path) -> Option<Found> {
    let name = new_name(path)?;
    let tagged = name
        .strip_prefix(host.dir.tag().as_str())
        .and_then(|rest| rest.strip_prefix('-'));
    let own = path.starts_with(host.dir.path()).then_some(name);
    let (task, step) = tagged.or(own)?.rsplit_once('-')?;
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
    hierarchies
        .iter()
        .flat_map(|h| paths_in(&root.join(h).join(MACHINES)))
        .filter(|p| {
            p.is_dir()
                && p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with(ours))
        })
        .map(|p| Found::placed(Kind::ControlGroup, p.display().to_string()))
        .collect()
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
