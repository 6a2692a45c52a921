//! What is done about orphans, as far as the site's policy goes: first they can do nothing any more, later they go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::look::libvirt;
use super::{Found, Kind, Orphan, Report, Standing};
use crate::probe::tool::find;
use crate::slice::libvirt::{Libvirt, Word};
use crate::slice::mark;
use crate::task::effect::process::{end, pause};
use crate::task::effect::{Machine, take_away};
use crate::task::exec::Program;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::jail::Jail;
use crate::task::policy::Orphans;
use crate::task::stop::Stop;
use crate::task::users::{Entry, entries, groups, processes};

/// How long the programs of the user database may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Goes as far as the policy does with what was an orphan in the look before already.
pub(super) fn settle(host: &Host, report: &mut Report) {
    let policy = &host.policy.safety;
    let (now, kept) = (
        report.at,
        u64::from(policy.remove_after_hours).saturating_mul(3600),
    );
    report.orphans.retain_mut(|orphan| {
        if orphan.since >= now || policy.orphans == Orphans::Report {
            return true;
        }
        let due = orphan.set_aside.is_some_and(|at| at.saturating_add(kept) <= now);
        let done = match orphan.standing {
            Standing::Seen => set_aside(host, orphan).map(|()| {
                tracing::warn!("an orphan is set aside: {}", orphan.found);
                orphan.standing = Standing::SetAside;
                orphan.set_aside = Some(now);
                true
            }),
            Standing::SetAside if due && policy.orphans == Orphans::Remove => {
                remove(host, orphan).map(|()| {
                    tracing::warn!("an orphan is taken away: {}", orphan.found);
                    false
                })
            }
            Standing::SetAside => Ok(true),
        };
        done.unwrap_or_else(|e| {
            orphan.trouble = Some(e.detail);
            true
        })
    });
}

/// Where a file or folder is kept that was set aside.
pub(super) fn kept_at(host: &Host, orphan: &Orphan) -> PathBuf {
    let name = Path::new(&orphan.found.name).file_name().unwrap_or_default();
    let name = format!("{}-{}", orphan.since, name.to_string_lossy());
    host.dir.quarantine().join(name)
}

/// Whether it lies in our own folder, where it can be moved aside.
pub(super) fn is_movable(host: &Host, found: &Found) -> bool {
    let file = matches!(
        found.kind,
        Kind::Machine | Kind::Slice | Kind::Lease | Kind::Unfinished
    );
    file && Path::new(&found.name).starts_with(host.dir.path())
}

/// Sees to it that it can do nothing any more: a process is stopped, an account locked, a folder moved out of the way.
///
/// # Errors
/// Why not.
pub fn set_aside(host: &Host, orphan: &Orphan) -> Result<(), Failure> {
    let found = &orphan.found;
    match found.kind {
        Kind::Process => {
            let Some((pid, start)) = found.process() else {
                return Ok(());
            };
            Ok(pause(host, pid, start)?)
        }
        Kind::User => {
            let lock = ["--lock", "--expiredate"];
            program(host, "usermod", &lock, &["1", &ours(host, found)?.name])
        }
        Kind::Domain => match is_marked_domain(host, found)? {
            Some(libvirt) if libvirt.runs(&found.name, &Stop::after(LIMIT))? => {
                libvirt.tell(&found.name, Word::Suspend, &Stop::after(LIMIT))?;
                Ok(())
            }
            _ => Ok(()),
        },
        _ if is_movable(host, found) => {
            let to = kept_at(host, orphan);
            let moved = std::fs::create_dir_all(host.dir.quarantine()).and_then(|()| {
                let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                std::fs::set_permissions(host.dir.quarantine(), own)?;
                std::fs::rename(&found.name, &to)
            });
            moved.map_err(|e| Failure::failed(format!("{}: {e}", found.name)))
        }
        // They do nothing where they lie.
        _ => Ok(()),
    }
}

/// Takes it away.
///
/// # Errors
/// Why not.
pub fn remove(host: &Host, orphan: &Orphan) -> Result<(), Failure> {
    let found = &orphan.found;
    let gone = |path: &Path| -> Result<(), Failure> {
        let text = path.to_str().unwrap_or_default().parse();
        let path = text.map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
        Ok(take_away(&path)?)
    };
    match found.kind {
        Kind::Process => match found.process() {
            Some((pid, start)) => Ok(end(host, pid, start, Duration::ZERO)?),
            None => Ok(()),
        },
        Kind::ControlGroup => {
            let name = found.name.rsplit('/').next().unwrap_or_default();
            let group = Machine::group_of(&host.roots.sys, name);
            group
                .remove()
                .map_err(|e| Failure::failed(format!("{}: {e}", found.name)))
        }
        Kind::User => {
            let user = ours(host, found)?;
            for (pid, start) in processes(&host.roots.proc, user.uid) {
                end(host, pid, start, Duration::ZERO)?;
            }
            let home = Path::new(&user.home);
            let homes = host.policy.users.home.as_ref().map_or("/home", |h| h.as_str());
            let owned = std::fs::symlink_metadata(home)
                .is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == user.uid);
            if owned && home.parent() == Some(Path::new(homes)) {
                gone(home)?;
            }
            program(host, "userdel", &[], &[&user.name])?;
            let left = groups(&host.roots.etc)?;
            if left
                .iter()
                .any(|(name, gid)| *name == user.name && *gid == user.uid)
            {
                program(host, "groupdel", &[], &[&user.name])?;
            }
            Ok(())
        }
        Kind::Domain => match is_marked_domain(host, found)? {
            Some(libvirt) => Ok(libvirt.forget(&found.name, &Stop::after(LIMIT))?),
            None => Ok(()),
        },
        Kind::Reservation | Kind::Target => {
            let path = Path::new(&found.name);
            // Another machine's may have its name by now.
            let marked = mark::in_file(path, &host.dir.tag());
            match Found::marked(found.kind, &found.name, &marked.unwrap_or_default()) {
                Some(still) if still == *found => gone(path),
                _ => Ok(()),
            }
        }
        _ if is_movable(host, found) => gone(&kept_at(host, orphan)),
        Kind::Mount => Ok(()),
        _ => gone(Path::new(&found.name)),
    }
}

/// libvirt, if the domain is there and still carries the mark.
fn is_marked_domain(host: &Host, found: &Found) -> Result<Option<Libvirt>, Failure> {
    let Some(libvirt) = libvirt(host) else {
        return Err(Failure::failed(format!("{found}: there is no virsh any more")));
    };
    let instance = host.dir.instance();
    let all = libvirt.described(&Stop::after(LIMIT))?;
    let still = all.iter().any(|(uuid, words)| {
        let mark = mark::of(words, &instance).unwrap_or_default();
        Found::marked(Kind::Domain, uuid, mark).as_ref() == Some(found)
    });
    Ok(still.then_some(libvirt))
}

/// The user, if its entry still carries the mark.
fn ours(host: &Host, found: &Found) -> Result<Entry, Failure> {
    let mark = match (&found.task_id, found.step) {
        (Some(task), Some(step)) => format!("virtengine {task}/{step}@{}", host.dir.instance()),
        _ => return Err(Failure::failed(format!("{found} carries no mark"))),
    };
    let user = entries(&host.roots.etc)?
        .into_iter()
        .find(|e| e.name == found.name && e.comment == mark);
    user.ok_or_else(|| Failure::failed(format!("{found} is another one now")))
}

fn program(host: &Host, name: &'static str, flags: &[&'static str], values: &[&str]) -> Result<(), Failure> {
    let Some(path) = find(name, None) else {
        return Err(Failure::failed(format!(
            "{name} is not installed; install passwd"
        )));
    };
    let program = flags.iter().fold(Program::new(&path), |p, f| p.flag(f));
    let program = values.iter().try_fold(program, |p, v| p.value(v))?;
    let jail = Jail::users(&host.roots.etc);
    program.within(LIMIT).jailed(jail).run(&Stop::after(LIMIT))?;
    Ok(())
}
