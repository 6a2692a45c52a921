//! Root works on a home that belongs to somebody else as that user: what is made there is the daemon's to read, and a daemon
//! that was taken over does not become root through what its configuration names.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Whom this process has become, for what it then may not open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Became {
    name: String,
    /// As chown takes it, with its group.
    owner: String,
}

impl Became {
    /// What to know where something may not be read or written.
    pub(super) fn remedy(&self, home: &Path) -> String {
        let (Self { name, owner }, home) = (self, home.display());
        format!(
            "as {home} belongs to {name}, so must what is in it: chown -R {owner} {home}; what is named on the command line must \
             be open to {name}"
        )
    }
}

/// From here on this process is the user to whom `home` belongs, if it is root and the user is not. A home that is not there
/// yet becomes root's. To be called before any thread is started: of a process the kernel changes one thread alone.
///
/// # Errors
/// As the operating system says, where root may not become another user.
pub(super) fn become_owner(home: &Path) -> io::Result<Option<Became>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let owner = match home.metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        owner => owner?,
    };
    if owner.uid() == 0 {
        return Ok(None);
    }
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let account = Account::find(owner.uid(), &text("/etc/passwd"), &text("/etc/group"));
    let gid = Gid::from_raw(account.gid.unwrap_or(owner.gid()));
    let groups: Vec<Gid> = account.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    let uid = Uid::from_raw(owner.uid());
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    eprintln!("as {}, to whom {} belongs", account.name, home.display());
    let owner = account.owner(uid, gid);
    Ok(Some(Became {
        name: account.name,
        owner,
    }))
}

/// A user as the machine's files have it.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    /// Its number if it has no name.
    name: String,
    gid: Option<u32>,
    /// Beside its own.
    groups: Vec<u32>,
}

impl Account {
    fn find(uid: u32, passwd: &str, group: &str) -> Self {
        // name:password:uid:gid:…
        let row = passwd.lines().find_map(|line| {
            let mut words = line.split(':');
            let name = words.next()?;
            let is = words.nth(1)?.parse() == Ok(uid);
            is.then(|| Some((name.to_owned(), words.next()?.parse::<u32>().ok()?)))?
        });
        let Some((name, gid)) = row else {
            return Self {
                name: format!("user id {uid}"),
                gid: None,
                groups: Vec::new(),
            };
        };
        // name:password:gid:members
        let groups = group.lines().filter_map(|line| {
            let mut words = line.split(':').skip(2);
            let number = words.next()?.parse::<u32>().ok()?;
            words.next()?.split(',').any(|m| m == name).then_some(number)
        });
        Self {
            groups: groups.collect(),
            gid: Some(gid),
            name,
        }
    }

    /// As chown takes it: without a name it cannot find the group.
    fn owner(&self, uid: Uid, gid: Gid) -> String {
        match self.gid {
            Some(_) => format!("{}:", self.name),
            None => format!("{}:{}", uid.as_raw(), gid.as_raw()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn an_account_has_its_groups_and_a_number_without_one_has_none() {
        let passwd = "root:x:0:0::/root:/bin/sh\nvirtengine:x:999:998::/:/bin/false\n";
        let group = "root:x:0:\nhsm:x:50:other,virtengine\nvirtengine:x:998:\nother:x:60:virtengine2\n";
        let found = Account::find(999, passwd, group);
        let (uid, gid) = (Uid::from_raw(999), Gid::from_raw(998));
        assert_eq!(found.owner(uid, gid), "virtengine:");
        assert_eq!(
            (found.name.as_str(), found.gid, found.groups),
            ("virtengine", Some(998), vec![50])
        );
        let nobody = Account::find(4711, passwd, group);
        assert_eq!(nobody.owner(Uid::from_raw(4711), gid), "4711:998");
        assert_eq!(
            (nobody.name.as_str(), nobody.gid, nobody.groups),
            ("user id 4711", None, vec![])
        );
    }

    #[test]
    fn root_works_on_the_home_of_another_user_as_that_user_and_on_its_own_as_root() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        for path in [&ours, &theirs] {
            std::fs::create_dir(path).unwrap();
        }
        assert_eq!(become_owner(&ours).unwrap(), None);
        assert_eq!(become_owner(&dir.path().join("absent")).unwrap(), None);
        if !geteuid().is_root() {
            return;
        }
        chown(&theirs, Some(4711), Some(4712)).unwrap();
        // The kernel's ids are of threads.
        let became = std::thread::spawn(move || {
            let became = become_owner(&theirs).unwrap();
            let may = std::fs::write(ours.join("x"), "").is_ok();
            (became, geteuid().as_raw(), may)
        });
        let (became, uid, may) = became.join().unwrap();
        let became = became.unwrap();
        assert_eq!(became.name, "user id 4711");
        let remedy = became.remedy(Path::new("/home"));
        assert!(remedy.contains("chown -R 4711:4712 /home;"), "{remedy}");
        assert_eq!((uid, may), (4711, false));
        assert!(geteuid().is_root());
    }
}
