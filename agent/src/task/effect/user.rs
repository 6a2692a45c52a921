//! A user of the system, by the distribution's own programs. Its mark stands in the comment of its entry.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hpc_schema::task::{HostPath, UserName};
use serde::{Deserialize, Serialize};

use super::process::find_marked;
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::probe::tool::find;
use crate::task::exec::{ExecError, Program};
use crate::task::host::Host;
use crate::task::jail::Jail;
use crate::task::users::{Entry, entries};

/// The programs wait for the lock of the user database.
const LIMIT: Duration = Duration::from_secs(60);

/// A user with a group of its own, without a home: that is made before, so that the user is there last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name.
    pub name: UserName,
    /// Its id, and that of its group.
    pub uid: u32,
    /// Its home.
    pub home: HostPath,
    /// What it logs in to.
    pub shell: HostPath,
}

/// What stands in the comment of an entry that is ours.
fn comment(scene: Scene<'_>) -> String {
    format!("virtengine {}@{}", scene.mark, scene.host.dir.instance())
}

impl User {
    fn entry(&self, host: &Host) -> Result<Option<Entry>, EffectError> {
        Ok(entries(&host.roots.etc)?
            .into_iter()
            .find(|e| e.name == self.name.as_str()))
    }
}

impl Act for User {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let all = entries(&scene.host.roots.etc)?;
        if let Some(other) = all
            .iter()
            .find(|e| e.name == self.name.as_str() || e.uid == self.uid)
        {
            return Err(EffectError::Busy(format!(
                "the user {} ({}) exists already",
                other.name, other.uid
            )));
        }
        // Written down before it is there; whether it is ours its comment says.
        note(Trace::User {
            uid: self.uid,
            gid: self.uid,
        })?;
        let id = self.uid.to_string();
        let text = comment(scene);
        Program::new(&program("groupadd")?)
            .marked(scene)
            .flag("--gid")
            .value(&id)?
            .value(self.name.as_str())?
            .within(LIMIT)
            .jailed(Jail::users(&scene.host.roots.etc))
            .run(scene.stop)?;
        let program = Program::new(&program("useradd")?).marked(scene);
        let program = [
            ("--uid", id.as_str()),
            ("--gid", id.as_str()),
            ("--home-dir", self.home.as_str()),
            ("--shell", self.shell.as_str()),
            ("--comment", text.as_str()),
        ]
        .into_iter()
        .try_fold(program, |p, (flag, value)| p.flag(flag).value(value))?;
        program
            .flag("--no-create-home")
            .flag("--no-log-init")
            .value(self.name.as_str())?
            .within(LIMIT)
            .jailed(Jail::users(&scene.host.roots.etc))
            .run(scene.stop)?;
        Ok(())
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        settle(scene)?;
        if trace.is_none() {
            return Ok(());
        }
        match self.entry(scene.host)? {
            Some(e) if e.comment == comment(scene) => {
                run("userdel", &self.name, scene)?;
            }
            // Somebody else's user of that name: then the group is not ours either.
            Some(_) => return Ok(()),
            None => {}
        }
        // userdel takes the user's own group along, or the agent was killed between the two.
        let groups = crate::task::users::groups(&scene.host.roots.etc)?;
        if groups
            .iter()
            .any(|(name, gid)| name == self.name.as_str() && *gid == self.uid)
        {
            run("groupdel", &self.name, scene)?;
        }
        Ok(())
    }

    fn observe(&self, scene: Scene<'_>, _trace: Option<&Trace>) -> Result<Seen, EffectError> {
        settle(scene)?;
        Ok(match self.entry(scene.host)? {
            None => Seen::Absent,
            Some(e) if e.comment == comment(scene) => Seen::Ours,
            Some(_) => Seen::Foreign(format!(
                "the user {} is not the one that the task made",
                self.name
            )),
        })
    }

    fn shown(&self) -> String {
        format!("user {}", self.name)
    }
}

fn program(name: &'static str) -> Result<PathBuf, ExecError> {
    find(name, None).ok_or_else(|| ExecError::Start {
        path: Path::new("/usr/sbin").join(name),
        source: std::io::ErrorKind::NotFound.into(),
    })
}

fn run(name: &'static str, user: &UserName, scene: Scene<'_>) -> Result<(), EffectError> {
    Program::new(&program(name)?)
        .value(user.as_str())?
        .within(LIMIT)
        .jailed(Jail::users(&scene.host.roots.etc))
        .run(scene.stop)?;
    Ok(())
}

/// A program that the agent had started when it was killed still holds the lock of the user database, and must not be
/// killed with it: it is waited for.
fn settle(scene: Scene<'_>) -> Result<(), EffectError> {
    let begun = Instant::now();
    while !find_marked(scene.host, scene.mark)?.is_empty() {
        if begun.elapsed() > LIMIT {
            return Err(EffectError::Unknown(
                "useradd of an earlier run does not end".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
