//! A name in a folder, reached without following a link anywhere: what is made is made under a name of our own, noted
//! by its inode, and then renamed onto a name that nobody has.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hpc_schema::task::HostPath;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Statx, StatxFlags, fsync, openat2,
    renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::{EffectError, Scene, Seen, Trace};
use crate::files;

/// Folders below folders that are held open; what lies deeper is moved up and comes with the next round.
const DEPTH: u32 = 64;

/// Takes away what is ours at `path`.
pub(super) fn remove(path: &HostPath, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
    match Place::find(path, scene)? {
        Some(place) => place.remove(trace),
        None => Ok(()),
    }
}

/// Takes away what is at `path`, whatever it is: whoever calls knows that it is ours.
pub(in crate::task) fn take_away(path: &HostPath) -> Result<(), EffectError> {
    match Place::at(path, String::new())? {
        Some(place) => place.remove_name(&place.name),
        None => Ok(()),
    }
}

/// What is at `path` now.
pub(super) fn observe(path: &HostPath, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
    match Place::find(path, scene)? {
        Some(place) => place.observe(trace),
        None => Ok(Seen::Absent),
    }
}

/// A place for a file or folder.
pub(super) struct Place {
    folder: OwnedFd,
    path: PathBuf,
    name: OsString,
    temporary: String,
}

impl Place {
    /// Opens the folder above `path`; no part of the way may be a link.
    pub(super) fn open(path: &HostPath, scene: Scene<'_>) -> Result<Self, EffectError> {
        Self::find(path, scene)?
            .ok_or_else(|| EffectError::io("open", Path::new(path.as_str()), Errno::NOENT))
    }

    /// The same; none if there is no such folder.
    fn find(path: &HostPath, scene: Scene<'_>) -> Result<Option<Self>, EffectError> {
        let (tag, mark) = (scene.host.dir.tag(), scene.mark);
        Self::at(path, format!(".ve-{tag}-{}-{}.new", mark.task_id, mark.step))
    }

    fn at(path: &HostPath, temporary: String) -> Result<Option<Self>, EffectError> {
        let path = PathBuf::from(path.as_str());
        let above = path.parent().unwrap_or(Path::new("/")).to_owned();
        let opened = openat2(
            rustix::fs::CWD,
            &above,
            OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        );
        let folder = match opened {
            Ok(folder) => folder,
            // A link or a file in its place is somebody else's: what we made is not at this path.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(EffectError::io("open, without a link on the way,", &above, e)),
        };
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Some(Self {
            folder,
            name,
            temporary,
            path,
        }))
    }

    /// The folder.
    pub(super) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// The name under which it is made.
    pub(super) fn temporary(&self) -> &str {
        &self.temporary
    }

    /// The same as a path, for programs.
    pub(super) fn temporary_path(&self) -> PathBuf {
        self.path.with_file_name(&self.temporary)
    }

    pub(super) fn io(&self, action: &'static str) -> impl FnOnce(Errno) -> EffectError {
        let path = self.path.clone();
        move |e| EffectError::io(action, &path, e)
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Statx>, EffectError> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        match statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, wanted) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.io("read")(e)),
        }
    }

    /// What identifies the thing under its temporary name.
    pub(super) fn trace(&self) -> Result<Trace, EffectError> {
        self.stat(self.temporary.as_ref())?
            .map(|s| inode(&s))
            .ok_or_else(|| self.io("read")(Errno::NOENT))
    }

    /// What another program has written under the temporary name gets its mode, and is on the disk when this returns.
    pub(super) fn seal(&self, mode: u32) -> Result<(), EffectError> {
        use std::os::unix::fs::PermissionsExt as _;

        let temporary = self.temporary_path();
        let sealed = || {
            let file = std::fs::File::open(&temporary)?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.sync_all()
        };
        Ok(sealed().map_err(files::at("write", &temporary))?)
    }

    /// Gives it its name, if nobody has it; it is on the disk when this returns.
    pub(super) fn publish(&self) -> Result<(), EffectError> {
        let renamed = renameat_with(
            &self.folder,
            self.temporary.as_str(),
            &self.folder,
            &self.name,
            RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => fsync(&self.folder).map_err(self.io("synchronise")),
            Err(Errno::EXIST) => Err(EffectError::Busy(format!(
                "{} exists already",
                self.path.display()
            ))),
            Err(e) => Err(self.io("rename to")(e)),
        }
    }

    /// What has the name now.
    pub(super) fn observe(&self, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        let Some(stat) = self.stat(&self.name)? else {
            return Ok(Seen::Absent);
        };
        // Without a trace it never had its name.
        if trace == Some(&inode(&stat)) {
            return Ok(Seen::Ours);
        }
        Ok(Seen::Foreign(format!(
            "{} is not what the task made",
            self.path.display()
        )))
    }

    /// Takes away what is ours, under whichever of the two names; all that is in it, if it is a folder.
    pub(super) fn remove(&self, trace: Option<&Trace>) -> Result<(), EffectError> {
        // Only we make names like this one.
        self.remove_name(self.temporary.as_ref())?;
        if self.observe(trace)? == Seen::Ours {
            self.remove_name(&self.name)?;
        }
        fsync(&self.folder).map_err(self.io("synchronise"))
    }

    fn remove_name(&self, name: &OsStr) -> Result<(), EffectError> {
        let Some(stat) = self.stat(name)? else {
            return Ok(());
        };
        let removed = if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
            remove_tree(&self.folder, name)
        } else {
            unlinkat(&self.folder, name, AtFlags::empty())
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV | Errno::BUSY) => Err(EffectError::Unknown(format!(
                "{} holds a mount; unmount it first",
                self.path.display()
            ))),
            Err(e) => Err(self.io("remove")(e)),
        }
    }
}

/// Numbers of inodes are used again; kind and time of birth tell the next one from ours.
fn inode(stat: &Statx) -> Trace {
    Trace::Inode {
        dev: device(stat),
        ino: stat.stx_ino,
        kind: u32::from(stat.stx_mode) & 0o170_000,
        born: stat.stx_btime.tv_sec,
        born_ns: stat.stx_btime.tv_nsec,
    }
}

fn device(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// A folder and all that is in it, however deep, never through a link and never across a mount: a folder that is bound
/// into ours lies on the same file system and is another's all the same.
fn remove_tree(above: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let top = below(above, name)?;
    let mut moved = 0u64;
    loop {
        let before = moved;
        clear(&top, &top, DEPTH, &mut moved)?;
        if moved == before {
            break;
        }
    }
    unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// A folder in a folder, if it is no mount.
fn below(above: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(above, name, flags, Mode::empty(), how)
}

fn clear(top: &OwnedFd, folder: &OwnedFd, depth: u32, moved: &mut u64) -> Result<(), Errno> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(folder, name, AtFlags::empty())?;
            continue;
        }
        let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
        match depth.checked_sub(1) {
            Some(depth) => {
                clear(top, &below(folder, name)?, depth, moved)?;
                unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            }
            None => move_up(top, folder, name, moved)?,
        }
    }
    Ok(())
}

/// Gives a folder a name at the top that nobody has.
fn move_up(top: &OwnedFd, folder: &OwnedFd, name: &OsStr, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved = moved.saturating_add(1);
        let free = format!(".ve-deep-{moved}");
        match renameat_with(folder, name, top, free.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}
