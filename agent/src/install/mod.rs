//! Puts the agent onto a host without a package manager, and takes it away again: user, directories, program, units.
//! The packages' scripts call it too, for what files in a package cannot say. What is to be done is a list of
//! [`Step`]s, made without touching anything; each is done so that doing it again changes nothing.

mod apply;
mod files;
mod step;
mod system;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use step::{Step, Whose};

use crate::task::TaskDir;
use crate::task::user;

/// The service's user and group.
pub const USER: &str = "virtengine";
/// The program's name, and its folder's.
const PROGRAM: &str = "virtengine-node-agent";
/// Groups that let it read the journal and use a TPM.
const GROUPS: [&str; 2] = ["systemd-journal", "tss"];
/// What is enabled and disabled; the helper's service is started by its socket.
const UNITS: [&str; 3] = [
    "virtengine-node-agent.service",
    "virtengine-node-tasks.service",
    "virtengine-node-helper.socket",
];

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file or directory.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// A program of the system.
    #[error("{0}")]
    System(String),
}

/// What manages services here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    /// systemd, or nothing that is known.
    Linux,
    /// rc.d.
    Bsd,
}

/// Where the agent is put.
#[derive(Debug, Clone)]
pub struct Place {
    root: PathBuf,
    os: Os,
}

impl Place {
    /// This host; below `root`, if one is named, a tree of which nothing runs (an image).
    #[must_use]
    pub fn new(root: Option<&Path>) -> Self {
        let os = if cfg!(target_os = "linux") {
            Os::Linux
        } else {
            Os::Bsd
        };
        Self {
            root: root.map_or_else(|| "/".into(), Path::to_owned),
            os,
        }
    }

    /// Whether it is a tree and not this host.
    #[must_use]
    pub fn is_image(&self) -> bool {
        self.root != Path::new("/")
    }

    /// A path of this place as this process sees it.
    #[must_use]
    pub fn at(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// Folder of configuration and keys.
    fn etc(&self) -> &'static str {
        match self.os {
            Os::Linux => "/etc/virtengine/node-agent",
            Os::Bsd => "/usr/local/etc/virtengine/node-agent",
        }
    }

    /// User and group id of the service, once there is one.
    fn service(&self) -> Option<(u32, u32)> {
        user::find(&self.at("/etc"), USER).ok().flatten()
    }

    /// Whether the service's user is there.
    #[must_use]
    pub fn has_user(&self) -> bool {
        self.service().is_some()
    }

    /// Whether systemd manages services here and now.
    fn systemd(&self) -> bool {
        !self.is_image() && self.os == Os::Linux && Path::new("/run/systemd/system").exists()
    }

    /// What completed tasks have left on this host; nobody else would end it.
    #[must_use]
    pub fn held_by_tasks(&self) -> Vec<String> {
        step::held(&TaskDir::new(&self.at(TASKS)))
    }
}

/// Where tasks leave what they leave, unless the configuration says otherwise.
const TASKS: &str = "/var/lib/virtengine/tasks";
const STATE: &str = "/var/lib/virtengine/node-agent";
const LOGS: &str = "/var/log/virtengine";

/// What the packages' own files leave to do: user, rights, directories, a restart of what runs.
#[must_use]
pub fn settle(place: &Place) -> Vec<Step> {
    let mut steps = Vec::new();
    if !place.is_image() {
        steps.push(Step::User);
        if place.os == Os::Linux {
            steps.extend(GROUPS.map(Step::Group));
            steps.push(Step::SlurmOperator);
        }
    }
    let etc = place.etc();
    let keys = format!("{etc}/keys");
    let parent = etc.trim_end_matches("/node-agent");
    for (path, mode, whose) in [
        (parent, 0o755, Whose::Roots),
        ("/var/lib/virtengine", 0o755, Whose::Roots),
        (etc, 0o750, Whose::Service),
        (&keys, 0o700, Whose::Service),
        (STATE, 0o700, Whose::Service),
        (LOGS, 0o750, Whose::Service),
    ] {
        steps.push(Step::Directory {
            path: place.at(path),
            mode,
            whose,
        });
    }
    for (name, mode) in [("config.yaml", 0o640), ("environment", 0o600)] {
        let path = place.at(&format!("{etc}/{name}"));
        steps.push(Step::Own { path, mode });
    }
    steps
}

/// Everything, from this program on; the service manager is told at the end.
#[must_use]
pub fn install(place: &Place, program: &Path) -> Vec<Step> {
    let mut steps = settle(place);
    let etc = place.etc();
    // The configuration comes before it is given to the service.
    let own = steps.iter().position(|s| matches!(s, Step::Own { .. }));
    let texts = [
        ("config.yaml", files::CONFIG, 0o640),
        ("environment", files::ENVIRONMENT, 0o600),
    ];
    let keep = texts.map(|(name, text, mode)| Step::Keep {
        path: place.at(&format!("{etc}/{name}")),
        text,
        mode,
    });
    let at = own.unwrap_or(steps.len());
    steps.splice(at..at, keep);
    steps.push(Step::Program {
        from: program.to_owned(),
        to: place.at(&format!("/usr/local/bin/{PROGRAM}")),
    });
    for (path, text, mode) in files::services(place.os).iter().copied() {
        steps.push(Step::Replace {
            path: place.at(path),
            text,
            mode,
        });
    }
    steps.extend(restart(place));
    steps
}

/// udev and the service manager read our files again, and what runs is restarted; nothing is started that did not run.
#[must_use]
pub fn restart(place: &Place) -> Vec<Step> {
    if !place.systemd() {
        return Vec::new();
    }
    let mut again = vec!["try-restart"];
    again.extend(UNITS);
    vec![
        Step::Udev,
        Step::Systemctl(vec!["daemon-reload"]),
        Step::Systemctl(again),
    ]
}

/// What is enabled and running ends.
fn stop(place: &Place) -> Vec<Step> {
    match place.os {
        _ if place.is_image() => Vec::new(),
        Os::Bsd => vec![Step::RcStop],
        Os::Linux if place.systemd() => vec![Step::Disable(UNITS.to_vec())],
        Os::Linux => Vec::new(),
    }
}

/// What its files gave the service on this host is taken back.
fn take_back(place: &Place) -> Vec<Step> {
    let gave = !place.is_image() && place.os == Os::Linux;
    gave.then_some(Step::UdevBack).into_iter().collect()
}

/// What a package's own end leaves to do: what runs ends, and what its files gave is taken back.
#[must_use]
pub fn unsettle(place: &Place) -> Vec<Step> {
    let mut steps = stop(place);
    steps.extend(take_back(place));
    steps
}

/// Program and units go; configuration, keys and state go only with `purge`, and what tasks hold does not go at all.
#[must_use]
pub fn uninstall(place: &Place, purge: bool) -> Vec<Step> {
    let mut steps = stop(place);
    steps.push(Step::Remove(place.at(&format!("/usr/local/bin/{PROGRAM}"))));
    for (path, _, _) in files::services(place.os) {
        steps.push(Step::Remove(place.at(path)));
    }
    // Once the rule is gone that would give it again, and while there is the group.
    steps.extend(take_back(place));
    if place.systemd() {
        steps.push(Step::Systemctl(vec!["daemon-reload"]));
    }
    if !purge {
        return steps;
    }
    let etc = place.etc();
    steps.push(Step::RemoveTasks(place.at(TASKS)));
    for path in [etc, STATE] {
        steps.push(Step::RemoveTree(place.at(path)));
    }
    steps.push(Step::RemoveLogs(place.at(LOGS)));
    let parent = etc.trim_end_matches("/node-agent");
    steps.push(Step::Remove(place.at(&format!("{parent}/tasks.yaml"))));
    steps.push(Step::Remove(place.at("/run/virtengine-node-agent.rehearsal")));
    for path in [parent, "/var/lib/virtengine", LOGS] {
        steps.push(Step::RemoveEmpty(place.at(path)));
    }
    if !place.is_image() {
        steps.push(Step::RemoveUser {
            unless: place.at("/var/lib/virtengine"),
        });
    }
    steps
}
