//! `allocation.provision_user`: a tenant's user on a whole node. All that belongs to it is made first and the user last,
//! so that nobody can log in to half of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hpc_schema::code::Code;
use hpc_schema::task::{HostPath, Params, ProvisionUser, UserLimits, UserProvisioned};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::files::at;
use crate::task::context::Context;
use crate::task::effect::{Directory, Effect, File, User};
use crate::task::failure::Failure;
use crate::task::handler::Handler;
use crate::task::host::Host;
use crate::task::ledger::Holding;
use crate::task::owner::Owner;
use crate::task::policy::Policy;
use crate::task::users::{entries, free_id, groups, processes, taken_ids};

/// Kind of owners.
pub(super) const KIND: &str = "user";
/// No id below is a person's on any distribution.
const LEAST: u32 = 1000;
/// Files of `/etc/skel` are copied up to this size.
const SKELETON: u64 = 64 << 10;
/// Ids are drawn one task at a time.
static DRAW: Mutex<()> = Mutex::new(());

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Provision;

impl Handler for Provision {
    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::ProvisionUser(p) => Some(Owner::new(KIND, p.username.as_str())),
            _ => None,
        }
    }

    fn allow(&self, params: &Params, policy: &Policy) -> Result<(), Failure> {
        let Params::ProvisionUser(p) = params else {
            return Ok(());
        };
        let (least, most) = (policy.users.min_uid.max(LEAST), policy.users.max_uid);
        match p.uid {
            Some(uid) if !(least..=most).contains(&uid) => {
                let what =
                    format!("uid: {uid} is not a tenant's here; users of the policy has {least} to {most}");
                Err(Failure::new(Code::PolicyDenied, what))
            }
            _ => Ok(()),
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::ProvisionUser(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        serde_json::to_value(provision(context, p)?).map_err(Failure::failed)
    }
}

fn provision(context: &mut Context<'_>, p: &ProvisionUser) -> Result<UserProvisioned, Failure> {
    let keys = authorized_keys(p);
    let digest = hex::encode(Sha256::digest(&keys));
    let owner = Owner::new(KIND, p.username.as_str());
    context.phase("check")?;
    if let Some(holding) = context.holdings(&owner).first() {
        return there_already(context.host(), p, holding, &digest);
    }
    let host = context.host().clone();
    let homes = host.policy.users.home.as_ref().map_or("/home", HostPath::as_str);
    let home = Path::new(homes).join(p.username.as_str());
    // Whose id it will be nobody else may draw meanwhile.
    let _one = context.stop().lock(&DRAW)?;
    let uid = choose(&host, p, &context.held_user_ids())?;
    context.phase("home")?;
    for path in [home.clone(), home.join(".ssh")] {
        context.apply(Effect::Directory(Directory {
            path: text(&path)?,
            mode: 0o700,
        }))?;
    }
    let key_file = home.join(".ssh/authorized_keys");
    context.apply(Effect::File(File::new(text(&key_file)?, 0o600, keys)))?;
    let skeleton = skeleton(&host.roots.etc.join("skel"), &home)?;
    context.phase("limits")?;
    if let Some(lines) = limits(p.username.as_str(), &p.limits) {
        let file = format!("security/limits.d/90-virtengine-{}.conf", p.username);
        let path = text(&host.roots.etc.join(file))?;
        context.apply(Effect::File(File::new(path, 0o644, lines.into_bytes())))?;
    }
    context.phase("user")?;
    context.apply(Effect::User(User {
        name: p.username.clone(),
        uid,
        home: text(&home)?,
        shell: match &host.policy.users.shell {
            Some(shell) => shell.clone(),
            None => text(Path::new("/bin/bash"))?,
        },
    }))?;
    // From the inside out: the user comes in when all is its own.
    for path in skeleton
        .into_iter()
        .chain([key_file, home.join(".ssh"), home.clone()])
    {
        lchown(&path, Some(uid), Some(uid)).map_err(at("change owner of", &path))?;
    }
    context.phase("verify")?;
    verify(&host, p, uid, &home)?;
    context.fact("allocation_id", json!(p.allocation_id))?;
    context.fact("uid", json!(uid))?;
    context.fact("home", json!(home))?;
    context.fact("keys", json!(digest))?;
    context.fact("limits", json!(limits(p.username.as_str(), &p.limits)))?;
    Ok(provisioned(p, uid, text(&home)?, false))
}

fn provisioned(p: &ProvisionUser, uid: u32, home: HostPath, existed: bool) -> UserProvisioned {
    UserProvisioned {
        allocation_id: p.allocation_id.clone(),
        username: p.username.clone(),
        uid,
        gid: uid,
        home,
        authorized_keys: u32::try_from(p.ssh_public_keys.len()).unwrap_or(u32::MAX),
        existed,
    }
}

/// Asked for twice, made once; asked for otherwise, refused.
fn there_already(
    host: &Host,
    p: &ProvisionUser,
    holding: &Holding,
    keys: &str,
) -> Result<UserProvisioned, Failure> {
    let fact = |name: &str| holding.facts.get(name);
    let uid = fact("uid")
        .and_then(Value::as_u64)
        .and_then(|u| u32::try_from(u).ok());
    let same = fact("allocation_id") == Some(&json!(p.allocation_id))
        && fact("keys") == Some(&json!(keys))
        // Not on record: made by a version that did not note them.
        && fact("limits").is_none_or(|l| *l == json!(limits(p.username.as_str(), &p.limits)))
        && p.uid.is_none_or(|asked| Some(asked) == uid);
    let Some(uid) = uid.filter(|_| same) else {
        let what = format!(
            "{} was made for another allocation, id, keys or limits; deprovision it first",
            p.username
        );
        return Err(Failure::new(Code::ResourceBusy, what));
    };
    let home = fact("home").and_then(Value::as_str).unwrap_or_default();
    verify(host, p, uid, Path::new(home))?;
    Ok(provisioned(p, uid, text(Path::new(home))?, true))
}

/// An id that nobody has; the name must be nobody's either.
fn choose(host: &Host, p: &ProvisionUser, held: &BTreeSet<u32>) -> Result<u32, Failure> {
    let (users, groups) = (entries(&host.roots.etc)?, groups(&host.roots.etc)?);
    let busy = |what: String| Err(Failure::new(Code::ResourceBusy, what));
    if users.iter().any(|u| u.name == p.username.as_str()) {
        return busy(format!(
            "username: {} is a user of this host that no task has made",
            p.username
        ));
    }
    if groups.iter().any(|(name, _)| name == p.username.as_str()) {
        return busy(format!("username: {} is a group of this host", p.username));
    }
    // Where the site has taken a user of ours away, its files still have its id.
    let mut taken = taken_ids(&users, &groups);
    taken.extend(held);
    let bounds = &host.policy.users;
    let uid = match p.uid {
        Some(uid) => free_id(uid, uid, &taken),
        None => free_id(bounds.min_uid.max(LEAST), bounds.max_uid, &taken),
    };
    let Some(uid) = uid else {
        return busy("uid: is taken, or all of users.min_uid to max_uid of the policy are".to_owned());
    };
    if !processes(&host.roots.proc, uid).is_empty() {
        return busy(format!("uid: processes of the id {uid} run on this host"));
    }
    Ok(uid)
}

fn authorized_keys(p: &ProvisionUser) -> Vec<u8> {
    let mut all = String::new();
    for key in &p.ssh_public_keys {
        all.push_str(key.as_str());
        all.push('\n');
    }
    all.into_bytes()
}

/// What `pam_limits` reads; none if nothing is limited.
fn limits(user: &str, limits: &UserLimits) -> Option<String> {
    let locked = limits
        .locked_memory_mib
        .map(|mib| u64::from(mib).saturating_mul(1024));
    let lines: Vec<String> = [
        ("nproc", limits.processes.map(u64::from)),
        ("nofile", limits.open_files.map(u64::from)),
        ("memlock", locked),
    ]
    .into_iter()
    .filter_map(|(item, value)| Some(format!("{user} - {item} {}\n", value?)))
    .collect();
    (!lines.is_empty()).then(|| lines.concat())
}

/// Copies the plain files of the skeleton; they go with the home.
fn skeleton(from: &Path, home: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut made = Vec::new();
    for name in crate::probe::names_in(from) {
        let source = from.join(&name);
        let Ok(meta) = fs::symlink_metadata(&source) else {
            continue;
        };
        if !meta.is_file() || meta.len() > SKELETON {
            continue;
        }
        let to = home.join(&name);
        let bytes = fs::read(&source).map_err(at("read", &source))?;
        crate::files::write(
            &to,
            &bytes,
            meta.permissions().mode() & 0o755,
            crate::files::Replace::Never,
            crate::files::Durability::Atomic,
        )?;
        made.push(to);
    }
    Ok(made)
}

/// Looks whether all is there as it should be.
fn verify(host: &Host, p: &ProvisionUser, uid: u32, home: &Path) -> Result<(), Failure> {
    let found = entries(&host.roots.etc)?
        .into_iter()
        .find(|u| u.name == p.username.as_str());
    let sound = |path: &Path, mode: u32| {
        fs::symlink_metadata(path)
            .is_ok_and(|m| m.uid() == uid && m.gid() == uid && m.mode() & 0o7777 == mode)
    };
    let user = found.is_some_and(|u| u.uid == uid && u.gid == uid && Path::new(&u.home) == home);
    let files = sound(home, 0o700)
        && sound(&home.join(".ssh"), 0o700)
        && sound(&home.join(".ssh/authorized_keys"), 0o600);
    if user && files {
        return Ok(());
    }
    let what = if user {
        "its home or its keys are"
    } else {
        "its entry is"
    };
    Err(Failure::failed(format!(
        "{}: {what} not as they were made; deprovision it",
        p.username
    )))
}

fn text(path: &Path) -> Result<HostPath, Failure> {
    let refuse = |what: String| Failure::failed(format!("{}: {what}", path.display()));
    path.to_str()
        .ok_or_else(|| refuse("is no UTF-8".to_owned()))?
        .parse()
        .map_err(|e: hpc_schema::task::TextError| refuse(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_still_held_is_given_to_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = crate::task::tests::bench::host(dir.path());
        host.roots.etc = dir.path().to_owned();
        for (file, text) in [("passwd", "root:x:0:0::/:/bin/sh\n"), ("group", "root:x:0:\n")] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let mut p: ProvisionUser =
            serde_json::from_str(r#"{"allocation_id":"a-1","username":"bob","ssh_public_keys":[]}"#).unwrap();
        let least = host.policy.users.min_uid;
        let held = [least].into();
        assert_eq!(choose(&host, &p, &BTreeSet::new()).unwrap(), least);
        // The site has removed the user of an allocation; its home is still there, and its.
        assert_eq!(choose(&host, &p, &held).unwrap(), least + 1);
        p.uid = Some(least);
        assert_eq!(choose(&host, &p, &held).unwrap_err().code, Code::ResourceBusy);
    }

    #[test]
    fn limits_are_written_as_pam_reads_them_and_only_those_that_are_asked_for() {
        assert_eq!(limits("bob", &UserLimits::default()), None);
        let some = UserLimits {
            processes: Some(512),
            open_files: None,
            locked_memory_mib: Some(64),
        };
        assert_eq!(
            limits("bob", &some).unwrap(),
            "bob - nproc 512\nbob - memlock 65536\n"
        );
    }
}
