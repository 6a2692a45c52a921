//! `allocation.deprovision_user`: nobody logs in any more, every process of the user ends, all that belongs to it goes,
//! and a look whether it has.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{DeprovisionUser, Params, UserDeprovisioned};
use serde_json::{Value, json};

use super::user_provision::KIND;
use crate::probe::names_in;
use crate::probe::tool::find;
use crate::task::context::Context;
use crate::task::effect::process::{ask, end};
use crate::task::exec::Program;
use crate::task::failure::Failure;
use crate::task::handler::{Handler, Recovery};
use crate::task::host::Host;
use crate::task::jail::Jail;
use crate::task::owner::Owner;
use crate::task::users::{entries, processes};

/// Processes are looked for again so often: each round ends those that the last one's had started.
const ROUNDS: u32 = 50;
/// Folders that everybody writes to: what the user has there goes too.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Folders of files that have the user's name.
const NAMED: [&str; 4] = [
    "/var/spool/cron/crontabs",
    "/var/spool/cron",
    "/var/mail",
    "/var/lib/systemd/linger",
];

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deprovision;

impl Handler for Deprovision {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::DeprovisionUser(p) => Some(Owner::new(KIND, p.username.as_str())),
            _ => None,
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::DeprovisionUser(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        serde_json::to_value(deprovision(context, p)?).map_err(Failure::failed)
    }
}

fn deprovision(context: &mut Context<'_>, p: &DeprovisionUser) -> Result<UserDeprovisioned, Failure> {
    let owner = Owner::new(KIND, p.username.as_str());
    context.phase("check")?;
    let holdings = context.holdings(&owner);
    let host = context.host().clone();
    let done = |existed, (ended, killed): (u32, u32)| UserDeprovisioned {
        allocation_id: p.allocation_id.clone(),
        username: p.username.clone(),
        existed,
        processes_ended: ended,
        processes_killed: killed,
        verified: true,
    };
    let Some(holding) = holdings.first() else {
        // Not ours to take away, or gone already.
        if entries(&host.roots.etc)?
            .iter()
            .any(|u| u.name == p.username.as_str())
        {
            let what = format!(
                "username: {} is a user of this host that no task has made",
                p.username
            );
            return Err(Failure::new(Code::PolicyDenied, what));
        }
        return Ok(done(false, (0, 0)));
    };
    if holding.facts.get("allocation_id") != Some(&json!(p.allocation_id)) {
        let what = format!("{} was made for another allocation", p.username);
        return Err(Failure::new(Code::ResourceBusy, what));
    }
    let uid = holding.facts.get("uid").and_then(Value::as_u64);
    let uid = uid.and_then(|u| u32::try_from(u).ok()).filter(|u| *u >= 1000);
    let uid = uid.ok_or_else(|| Failure::new(Code::OutcomeUnknown, "the user's id is not on record"))?;
    context.phase("lock")?;
    lock(context, p)?;
    context.phase("processes")?;
    let counted = end_all(context, uid, Duration::from_secs(u64::from(p.grace_seconds)))?;
    context.phase("belongings")?;
    remove_belongings(p.username.as_str(), uid)?;
    context.phase("release")?;
    let home = holding
        .facts
        .get("home")
        .and_then(Value::as_str)
        .map(PathBuf::from);
    let undone = context.release(&owner)?;
    if let Some(why) = undone.stuck.first() {
        return Err(Failure::new(Code::OutcomeUnknown, why));
    }
    context.phase("verify")?;
    let left = left(&host, p.username.as_str(), uid, home.as_deref())?;
    if let Some(first) = left.first() {
        return Err(Failure::new(
            Code::OutcomeUnknown,
            format!("{first} is left of {}", p.username),
        ));
    }
    Ok(done(true, counted))
}

/// No new session: the account has expired and has no password. Keys do not let in to an expired account.
fn lock(context: &Context<'_>, p: &DeprovisionUser) -> Result<(), Failure> {
    let there = entries(&context.host().roots.etc)?;
    let Some(usermod) = find("usermod", None).filter(|_| there.iter().any(|u| u.name == p.username.as_str()))
    else {
        return Ok(());
    };
    let program = Program::new(&usermod)
        .jailed(Jail::users(&context.host().roots.etc))
        .flag("--lock")
        .flag("--expiredate")
        .value("1")?;
    context.run(program.value(p.username.as_str())?)?;
    Ok(())
}

/// Ends every process of the user; how many ended when they were asked to, and how many had to be killed.
fn end_all(context: &Context<'_>, uid: u32, grace: Duration) -> Result<(u32, u32), Failure> {
    let host = context.host();
    let find = || processes(&host.roots.proc, uid);
    let asked = find();
    for (pid, start) in &asked {
        ask(host, *pid, *start);
    }
    let begun = Instant::now();
    while begun.elapsed() < grace && !find().is_empty() {
        context.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut killed = 0u32;
    for _ in 0..ROUNDS {
        let now = find();
        if now.is_empty() {
            let all = u32::try_from(asked.len()).unwrap_or(u32::MAX);
            return Ok((all.saturating_sub(killed), killed));
        }
        for (pid, start) in now {
            end(host, pid, start, Duration::ZERO)?;
            killed = killed.saturating_add(1);
        }
        context.check()?;
    }
    let what = format!("processes of the id {uid} go on being started");
    Err(Failure::new(Code::OutcomeUnknown, what))
}

/// What no effect has made: the user did.
fn remove_belongings(name: &str, uid: u32) -> Result<(), Failure> {
    for path in belongings(name, uid) {
        let gone = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(_) => continue,
        };
        match gone {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("{}: {e}", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A file of the user; the mark that it lingers is root's. Folders of the system have names too.
fn its_own(path: &Path, uid: u32) -> bool {
    let lingers = path.starts_with("/var/lib/systemd/linger");
    fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && (m.uid() == uid || lingers))
}

/// Files with the user's name, and what it owns where everybody writes.
fn belongings(name: &str, uid: u32) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = NAMED
        .iter()
        .map(|d| Path::new(d).join(name))
        .filter(|p| its_own(p, uid))
        .collect();
    for folder in SHARED.map(Path::new) {
        let owned = |path: &Path| fs::symlink_metadata(path).is_ok_and(|m| m.uid() == uid);
        all.extend(
            names_in(folder)
                .iter()
                .map(|n| folder.join(n))
                .filter(|p| owned(p)),
        );
    }
    all
}

fn left(host: &Host, name: &str, uid: u32, home: Option<&Path>) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    if entries(&host.roots.etc)?
        .iter()
        .any(|u| u.name == name || u.uid == uid)
    {
        left.push("the user's entry".to_owned());
    }
    if !processes(&host.roots.proc, uid).is_empty() {
        left.push("a process".to_owned());
    }
    if let Some(home) = home.filter(|h| fs::symlink_metadata(h).is_ok()) {
        left.push(home.display().to_string());
    }
    left.extend(belongings(name, uid).iter().map(|p| p.display().to_string()));
    Ok(left)
}
