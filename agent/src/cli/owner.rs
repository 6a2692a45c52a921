//! What belongs to an unprivileged user is that user's word: a configuration or a key file names programs, libraries and
//! files. Root acts on it as that user, so that a service which was taken over is not root as soon as root asks
//! something of it.

use std::path::{Path, PathBuf};

use super::Failure;
use crate::doctor::user::User;
use crate::files::Owner;

/// From here on this process is the first other than root to whom one of `paths` belongs. Nothing changes for who is not
/// root, or where all is root's. To be called before any thread is started.
pub(super) fn as_owner_of(paths: &[&Path]) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Some((path, owner)) = paths.iter().find_map(|path| owner_of(path)) else {
        return Ok(());
    };
    let user = User::of_host(owner.uid, Path::new("/etc"));
    let gid = user.gids().first().copied().unwrap_or(owner.gid);
    turn_into(owner.uid, gid, user.gids()).map_err(|e| {
        let (name, path) = (&user.name, path.display());
        Failure::new(
            1,
            format_args!("{path} belongs to {name}, and root cannot act as {name}: {e}; run this as {name}"),
        )
    })?;
    eprintln!("as {}, to whom {} belongs", user.name, path.display());
    Ok(())
}

/// Whose a path is, or will be once it is made; none if it is root's. A link is its owner's word too.
fn owner_of(path: &Path) -> Option<(PathBuf, Owner)> {
    let absolute = std::path::absolute(path).ok()?;
    let owned = |part: &Path, meta: std::fs::Metadata| {
        use std::os::unix::fs::MetadataExt as _;
        let owner = Owner {
            uid: meta.uid(),
            gid: meta.gid(),
        };
        (owner.uid != 0).then(|| (part.to_owned(), owner))
    };
    let link = absolute.ancestors().find_map(|part| {
        let meta = part
            .symlink_metadata()
            .ok()
            .filter(std::fs::Metadata::is_symlink)?;
        owned(part, meta)
    });
    link.or_else(|| {
        let (part, meta) = absolute
            .ancestors()
            .find_map(|part| Some((part, part.metadata().ok()?)))?;
        owned(part, meta)
    })
}

#[cfg(target_os = "linux")]
fn turn_into(uid: u32, gid: u32, groups: &[u32]) -> std::io::Result<()> {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use rustix::{process::Gid, process::Uid};
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let groups: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
    // Of this thread alone; those that it starts have the same.
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// The same command again; there the other groups go with the user.
#[cfg(not(target_os = "linux"))]
fn turn_into(uid: u32, gid: u32, _groups: &[u32]) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt as _;
    let mut again = std::process::Command::new(std::env::current_exe()?);
    Err(again.args(std::env::args_os().skip(1)).gid(gid).uid(uid).exec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    #[test]
    fn root_acts_on_what_belongs_to_the_service_as_the_service() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        for path in [&ours, &theirs] {
            std::fs::create_dir(path).unwrap();
        }
        as_owner_of(&[&ours]).unwrap();
        let me = rustix::process::geteuid().as_raw();
        if me != 0 {
            return;
        }
        chown(&theirs, Some(4711), Some(4712)).unwrap();
        // What will be made there is theirs, and so is where their link leads.
        let link = dir.path().join("link");
        symlink(&ours, &link).unwrap();
        lchown(&link, Some(4711), Some(4712)).unwrap();
        for path in [theirs.join("keys/agent.key"), link.join("agent.key")] {
            assert_eq!(owner_of(&path).map(|(_, o)| (o.uid, o.gid)), Some((4711, 4712)));
        }
        // The kernel's ids are of threads.
        let become_it = std::thread::spawn(move || {
            as_owner_of(&[&ours, &theirs]).unwrap();
            let made = std::fs::write(ours.join("x"), "").is_ok();
            let groups = rustix::process::getgroups().unwrap();
            (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
                groups.len(),
                made,
            )
        });
        assert_eq!(become_it.join().unwrap(), (4711, 4712, 0, false));
        assert_eq!(rustix::process::geteuid().as_raw(), 0);
    }
}
