//! One change of the host, in words.

use std::fmt;
use std::path::PathBuf;

use super::USER;
use crate::state::read_json;
use crate::task::TaskDir;
use crate::task::domain::Holdings;

/// Whose a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Root's.
    Roots,
    /// The service's user's; root's in an image that has no such user.
    Service,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The service's user and group.
    User,
    /// The user in this group, where there is one.
    Group(&'static str),
    /// The user an operator in Slurm, where Slurm keeps accounts.
    SlurmOperator,
    /// A directory.
    Directory {
        /// Where.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Whose.
        whose: Whose,
    },
    /// A configuration file, unless there is one.
    Keep {
        /// Where.
        path: PathBuf,
        /// What is in it.
        text: &'static str,
        /// Its permission bits.
        mode: u32,
    },
    /// A configuration file becomes the service's.
    Own {
        /// Where.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The program, in one step: what runs keeps its own, and nobody meets half of one.
    Program {
        /// From here.
        from: PathBuf,
        /// To there.
        to: PathBuf,
    },
    /// A file of ours, whatever was there.
    Replace {
        /// Where.
        path: PathBuf,
        /// What is in it.
        text: &'static str,
        /// Its permission bits.
        mode: u32,
    },
    /// What udev's rule is for is the service's to read, where it is there already.
    Udev,
    /// What udev's rule has made the service's to read is root's again.
    UdevBack,
    /// The service manager is told.
    Systemctl(Vec<&'static str>),
    /// These units are stopped and not started again.
    Disable(Vec<&'static str>),
    /// The rc.d service is stopped.
    RcStop,
    /// A file goes.
    Remove(PathBuf),
    /// A directory goes with all in it.
    RemoveTree(PathBuf),
    /// The directory of tasks goes, unless they hold something here.
    RemoveTasks(PathBuf),
    /// The agent's log goes.
    RemoveLogs(PathBuf),
    /// A directory goes if nothing is in it.
    RemoveEmpty(PathBuf),
    /// The user goes, unless this is still there.
    RemoveUser {
        /// Another program's state, as a rule.
        unless: PathBuf,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => write!(f, "user {USER}"),
            Self::Group(group) => write!(f, "user {USER} in group {group}"),
            Self::SlurmOperator => write!(f, "user {USER} an operator in Slurm"),
            Self::Directory { path, mode, whose } => {
                let whose = if *whose == Whose::Service { USER } else { "root" };
                write!(f, "directory {} {mode:04o} {whose}", path.display())
            }
            Self::Keep { path, mode, .. } => {
                write!(f, "file {} {mode:04o}, unless there is one", path.display())
            }
            Self::Own { path, mode } => write!(f, "file {} {mode:04o} {USER}", path.display()),
            Self::Program { from, to } => write!(f, "program {} from {}", to.display(), from.display()),
            Self::Replace { path, mode, .. } => write!(f, "file {} {mode:04o}", path.display()),
            Self::Udev => f.write_str("udevadm control --reload; udevadm trigger --subsystem-match=powercap"),
            Self::UdevBack => f.write_str("chmod g-r, chgrp root /sys/class/powercap/*/energy_uj"),
            Self::Systemctl(arguments) => write!(f, "systemctl {}", arguments.join(" ")),
            Self::Disable(units) => write!(f, "systemctl disable --now {}", units.join(" ")),
            Self::RcStop => f.write_str("service virtengine_node_agent onestop"),
            Self::Remove(path) => write!(f, "remove {}", path.display()),
            Self::RemoveTree(path) => write!(f, "remove {} and all in it", path.display()),
            Self::RemoveTasks(path) => {
                write!(f, "remove {}, unless tasks hold something", path.display())
            }
            Self::RemoveLogs(path) => write!(f, "remove {}/node-agent.log*", path.display()),
            Self::RemoveEmpty(path) => write!(f, "remove {} if it is empty", path.display()),
            Self::RemoveUser { unless } => {
                write!(f, "remove user {USER}, unless {} stays", unless.display())
            }
        }
    }
}

/// Names of what completed tasks have left; a file that cannot be read holds something.
pub(super) fn held(dir: &TaskDir) -> Vec<String> {
    match read_json::<Holdings>(&dir.holdings()) {
        Ok(all) => all
            .unwrap_or_default()
            .holdings
            .into_iter()
            .map(|h| format!("{} {}", h.kind, h.name))
            .collect(),
        Err(e) => vec![e.to_string()],
    }
}
