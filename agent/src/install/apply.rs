//! Steps are done. Directories of the service's user are not trusted: nothing in them is followed through a link.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use super::{InstallError, Place, Step, USER, Whose, system};
use crate::files::{Durability, FileError, Owner, Replace, at, directory_of, read_text, write_for};
use crate::probe::names_in;
use crate::task::TaskDir;

/// More than any file of ours.
const LIMIT: u64 = 1 << 20;

impl Step {
    /// Does it; what has changed, or what is to be known; none if all was so.
    ///
    /// # Errors
    /// What failed, and where.
    pub fn take(&self, place: &Place) -> Result<Option<String>, InstallError> {
        let told = |changed: bool, what: &dyn Fn() -> String| changed.then(what);
        match self {
            Self::User => system::make_user(place.os),
            Self::Group(group) => system::join(group),
            Self::SlurmOperator => Ok(system::slurm_operator()),
            Self::Directory { path, mode, whose } => {
                let owner = owner(place, *whose)?;
                let changed = directory(path, *mode, owner)?;
                Ok(told(changed, &|| format!("{} is there", path.display())))
            }
            Self::Keep { path, text, mode } => {
                let missing = fs::symlink_metadata(path).is_err();
                if missing {
                    put(path, text.as_bytes(), *mode)?;
                }
                Ok(told(missing, &|| format!("{} is there", path.display())))
            }
            Self::Own { path, mode } => Ok(own(path, *mode, owner(place, Whose::Service)?)?),
            Self::Program { from, to } => {
                let changed = program(from, to)?;
                Ok(told(changed, &|| format!("{} is there", to.display())))
            }
            Self::Replace { path, text, mode } => {
                let other = read_text(path, LIMIT).ok().as_deref() != Some(*text);
                if other {
                    directory(directory_of(path), 0o755, None)?;
                    put(path, text.as_bytes(), *mode)?;
                }
                Ok(told(other, &|| format!("{} is there", path.display())))
            }
            Self::Udev => Ok(system::udev()),
            Self::UdevBack => Ok(udev_back(place)),
            Self::Systemctl(arguments) => system::systemctl(arguments).map(|()| None),
            Self::Disable(units) => system::disable(units),
            Self::RcStop => Ok(system::rc_stop()),
            Self::Remove(path) => gone(path, fs::remove_file(path)),
            Self::RemoveTree(path) => gone(path, fs::remove_dir_all(path)),
            Self::RemoveTasks(path) => {
                let held = super::step::held(&TaskDir::new(path));
                if held.is_empty() {
                    return gone(path, fs::remove_dir_all(path));
                }
                Ok(Some(format!(
                    "{} stays: tasks hold {} here; have the provider end them, or end them by hand, and remove it",
                    path.display(),
                    held.join(", ")
                )))
            }
            Self::RemoveLogs(path) => logs(path),
            Self::RemoveEmpty(path) => Ok(match fs::remove_dir(path) {
                Ok(()) => Some(format!("{} is gone", path.display())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(_) => Some(format!("{} stays: it is not empty", path.display())),
            }),
            Self::RemoveUser { unless } if unless.exists() => Ok(None),
            Self::RemoveUser { .. } => system::remove_user(place.os),
        }
    }
}

/// The numbers; none for root's, and in an image that has no such user.
fn owner(place: &Place, whose: Whose) -> Result<Option<Owner>, InstallError> {
    if whose == Whose::Roots {
        return Ok(None);
    }
    match place.service() {
        Some((uid, gid)) => Ok(Some(Owner { uid, gid })),
        None if place.is_image() => Ok(None),
        None => Err(InstallError::System(format!("there is no user {USER}"))),
    }
}

fn directory(path: &Path, mode: u32, owner: Option<Owner>) -> Result<bool, FileError> {
    let made = match fs::symlink_metadata(path) {
        Ok(_) => false,
        Err(_) => {
            fs::create_dir_all(path).map_err(at("create directory", path))?;
            true
        }
    };
    // What is shared with others (/etc, an rc.d folder) keeps the mode that it has.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = open(path, flags, Mode::empty()).map_err(|e| at("open directory", path)(e.into()))?;
    let file = File::from(handle);
    if owner.is_none() && !made {
        return Ok(false);
    }
    Ok(settle(&file, path, mode, owner)? || made)
}

/// Gives a file or directory its mode and owner; whether it had others.
fn settle(file: &File, path: &Path, mode: u32, owner: Option<Owner>) -> Result<bool, FileError> {
    let change = || -> io::Result<bool> {
        let meta = file.metadata()?;
        let other_mode = meta.mode() & 0o7777 != mode;
        if other_mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        let other = owner.filter(|o| (o.uid, o.gid) != (meta.uid(), meta.gid()));
        if let Some(o) = other {
            fchown(file, Some(o.uid), Some(o.gid))?;
        }
        Ok(other_mode || other.is_some())
    };
    change().map_err(at("change owner of", path))
}

/// A configuration file becomes the service's. Others than root may have put something there: a link of either kind
/// must not give them a file that is not theirs.
fn own(path: &Path, mode: u32, owner: Option<Owner>) -> Result<Option<String>, FileError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(handle) => File::from(handle),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(at("open", path)(e.into())),
    };
    let meta = file.metadata().map_err(at("read", path))?;
    if !meta.is_file() || meta.nlink() != 1 {
        let what = "must be a file that has no other name; put one there";
        return Err(at("use", path)(io::Error::other(what)));
    }
    // An administrator who has made it stricter keeps it so.
    let mode = meta.mode() & 0o7777 & mode;
    settle(&file, path, mode, owner)?;
    Ok(None)
}

/// The kernel gives the counters of energy to root alone; udev's rule has given them to the service's group, and its end
/// takes nothing back.
fn udev_back(place: &Place) -> Option<String> {
    let (_, gid) = place.service()?;
    let class = place.at("/sys/class/powercap");
    let counters = names_in(&class)
        .into_iter()
        .map(|n| class.join(n).join("energy_uj"));
    let given: Vec<_> = counters
        .filter_map(|path| Some((fs::metadata(&path).ok()?, path)))
        .filter(|(meta, _)| meta.gid() == gid && gid != 0)
        .collect();
    // All of them, whatever the first one says.
    let taken = given.iter().map(|(meta, path)| {
        let mode = Permissions::from_mode(meta.mode() & 0o7777 & !0o040);
        let done = fs::set_permissions(path, mode).and_then(|()| chown(path, None, Some(0)));
        Some(format!(
            "{} stays as it is until the next start ({})",
            path.display(),
            done.err()?
        ))
    });
    let back = || "the counters of energy are root's alone again".to_owned();
    taken
        .fold(None, Option::or)
        .or_else(|| (!given.is_empty()).then(back))
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let root = rustix::process::geteuid().is_root();
    let owner = root.then_some(Owner { uid: 0, gid: 0 });
    write_for(owner, path, bytes, mode, Replace::Yes, Durability::Synced)
}

fn program(from: &Path, to: &Path) -> Result<bool, FileError> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let ours = fs::metadata(from).map_err(at("read", from))?;
    if fs::metadata(to).is_ok_and(|theirs| same(&ours, &theirs)) {
        return Ok(false);
    }
    let bytes = fs::read(from).map_err(at("read", from))?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    directory(directory_of(to), 0o755, None)?;
    put(to, &bytes, 0o755)?;
    Ok(true)
}

fn gone(path: &Path, removed: io::Result<()>) -> Result<Option<String>, InstallError> {
    match removed {
        Ok(()) => Ok(Some(format!("{} is gone", path.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at("remove", path)(e).into()),
    }
}

fn logs(folder: &Path) -> Result<Option<String>, InstallError> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(None);
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("node-agent.log") {
            gone(&entry.path(), fs::remove_file(entry.path()))?;
        }
    }
    Ok(None)
}
