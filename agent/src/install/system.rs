//! Programs of the system that make users and manage services. By absolute path, with an argument vector.

use std::path::Path;
use std::time::Duration;

use super::{InstallError, Os, USER};
use crate::files::read_text;
use crate::probe::tool::{Tool, find};
use crate::task::user;

const HOME: &str = "/var/lib/virtengine";
/// Stopping a service waits for the task under way.
const DEADLINE: Duration = Duration::from_secs(180);
const QUICK: Duration = Duration::from_secs(10);
const LIMIT: usize = 64 << 10;

fn run(name: &str, arguments: &[&str]) -> Result<String, InstallError> {
    let path = find(name, None).ok_or_else(|| {
        InstallError::System(format!(
            "there is no {name}; install it, or make user and group {USER} by hand (home {HOME}, no shell, no password)"
        ))
    })?;
    let printed = Tool::new(path, DEADLINE, LIMIT)
        .run(arguments)
        .map_err(|e| InstallError::System(format!("{name} {}: {e}", arguments.join(" "))))?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// A line of `/etc/group`, by its name.
fn group(name: &str) -> Option<String> {
    let text = read_text(Path::new("/etc/group"), 8 << 20).ok()?;
    let line = text.lines().find(|l| l.split(':').next() == Some(name))?;
    Some(line.to_owned())
}

pub(super) fn make_user(os: Os) -> Result<Option<String>, InstallError> {
    let found = user::find(Path::new("/etc"), USER)?;
    if found.is_some() {
        return Ok(None);
    }
    match os {
        Os::Bsd => {
            run(
                "pw",
                &[
                    "useradd",
                    USER,
                    "-d",
                    HOME,
                    "-s",
                    "/usr/sbin/nologin",
                    "-c",
                    "VirtEngine",
                ],
            )?;
        }
        Os::Linux => {
            if group(USER).is_none() {
                run("groupadd", &["--system", USER])?;
            }
            run(
                "useradd",
                &[
                    "--system",
                    "--gid",
                    USER,
                    "--home-dir",
                    HOME,
                    "--no-create-home",
                    "--shell",
                    "/usr/sbin/nologin",
                    USER,
                ],
            )?;
        }
    }
    Ok(Some(format!("user {USER} is made")))
}

/// Where the group exists.
pub(super) fn join(name: &str) -> Result<Option<String>, InstallError> {
    let Some(line) = group(name) else {
        return Ok(None);
    };
    let members = line.rsplit(':').next().unwrap_or_default();
    if members.split(',').any(|m| m == USER) {
        return Ok(None);
    }
    run("usermod", &["--append", "--groups", name, USER])?;
    Ok(Some(format!("user {USER} is in group {name}")))
}

/// The agent sees all jobs of its node, where Slurm keeps accounts and answers. Draining takes more, and is the helper's:
/// an administrator in Slurm would be one of all nodes. What it says is only said: `doctor` and `status` say what is
/// missing, and what to do.
pub(super) fn slurm_operator() -> Option<String> {
    let path = find("sacctmgr", None)?;
    let name = format!("name={USER}");
    let ask = [
        "--noheader",
        "--parsable2",
        "show",
        "user",
        &name,
        "format=adminlevel",
    ];
    let level = Tool::new(path.clone(), QUICK, LIMIT).run(&ask).ok()?;
    let level = String::from_utf8_lossy(&level).trim().to_lowercase();
    let make: &[&str] = match level.as_str() {
        "operator" | "administrator" => return None,
        "" => &[
            "--immediate",
            "--quiet",
            "add",
            "user",
            USER,
            "account=root",
            "adminlevel=operator",
        ],
        _ => &[
            "--immediate",
            "--quiet",
            "modify",
            "user",
            &name,
            "set",
            "adminlevel=operator",
        ],
    };
    Some(match Tool::new(path, QUICK, LIMIT).run(make) {
        Ok(_) => format!("user {USER} is an operator in Slurm"),
        Err(e) => format!(
            "{USER} is no operator in Slurm yet ({e}); sacctmgr add user {USER} account=root adminlevel=operator"
        ),
    })
}

/// Has udev take our rule and apply it to what is there. Where that fails the rule counts from the next start on.
pub(super) fn udev() -> Option<String> {
    let path = find("udevadm", None)?;
    let calls: [&[&str]; 2] = [
        &["control", "--reload"],
        &["trigger", "--subsystem-match=powercap"],
    ];
    calls.into_iter().find_map(|arguments| {
        let e = Tool::new(path.clone(), QUICK, LIMIT).run(arguments).err()?;
        Some(format!(
            "the counters of energy can be read from the next start of this host on ({e})"
        ))
    })
}

pub(super) fn systemctl(arguments: &[&str]) -> Result<(), InstallError> {
    run("systemctl", arguments).map(drop)
}

/// Each unit that is there.
pub(super) fn disable(units: &[&str]) -> Result<Option<String>, InstallError> {
    let mut disabled = Vec::new();
    for unit in units {
        let known = run("systemctl", &["list-unit-files", "--no-legend", unit]).unwrap_or_default();
        if !known.trim().is_empty() {
            run("systemctl", &["disable", "--now", "--quiet", unit])?;
            disabled.push(*unit);
        }
    }
    Ok((!disabled.is_empty()).then(|| format!("{} are stopped", disabled.join(", "))))
}

pub(super) fn rc_stop() -> Option<String> {
    if !Path::new("/usr/local/etc/rc.d/virtengine_node_agent").exists() {
        return None;
    }
    match run("service", &["virtengine_node_agent", "onestop"]) {
        Ok(_) => Some("virtengine_node_agent is stopped".to_owned()),
        Err(e) => Some(format!("virtengine_node_agent was not stopped: {e}")),
    }
}

pub(super) fn remove_user(os: Os) -> Result<Option<String>, InstallError> {
    if user::find(Path::new("/etc"), USER)?.is_none() {
        return Ok(None);
    }
    match os {
        Os::Bsd => run("pw", &["userdel", USER])?,
        Os::Linux => run("userdel", &[USER])?,
    };
    Ok(Some(format!("user {USER} is gone")))
}
