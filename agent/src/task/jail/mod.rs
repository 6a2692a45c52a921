//! What processes of the task domain may do, by the kernel's word: Landlock for files and TCP ports, seccomp for calls and
//! sockets. A jail is entered by a thread; what it starts afterwards is in it too, and nothing leads out.

mod calls;
mod files;
mod trial;

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde::{Deserialize, Serialize};

pub use trial::{Attempt, By, JAILS, TRIAL_COMMAND, Tried, attempts};

/// A jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Jail {
    /// The process that carries tasks out: calls that no task needs are refused. Its files are not bounded by Landlock:
    /// a process in a domain cannot see the marks of machines that an earlier one has started.
    Acting,
    /// The process that speaks with the gateway: it reads these files and folders, writes those, connects to these
    /// ports, and starts nothing.
    Link {
        /// What it may read, beside what programs of the system need.
        reads: Vec<PathBuf>,
        /// What it may write.
        writes: Vec<PathBuf>,
        /// TCP ports that it may connect to.
        ports: Vec<u16>,
    },
    /// A program that reads what it likes, writes below these paths alone, and has no network.
    Writes(Vec<PathBuf>),
    /// A machine: the same with a network, whose bounds QEMU is told.
    Machine(PathBuf),
    /// Any other program of the system: everything but what no task needs, and no other kernels.
    System,
}

/// What the kernel enforces of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// Files and ports.
    pub landlock: bool,
    /// Calls and sockets.
    pub seccomp: bool,
}

impl Jail {
    /// A program that changes nothing.
    #[must_use]
    pub fn reads() -> Self {
        Self::Writes(Vec::new())
    }

    /// The programs that keep the user database.
    #[must_use]
    pub fn users(etc: &std::path::Path) -> Self {
        Self::Writes(
            ["/run", "/var", "/tmp"]
                .iter()
                .map(PathBuf::from)
                .chain([etc.to_owned()])
                .collect(),
        )
    }

    /// Takes the calling thread in, for good, with all that it starts from now on. A kernel without one of the two
    /// enforces the other.
    ///
    /// # Errors
    /// The kernel has it and refuses.
    pub fn enter(&self) -> io::Result<Enforced> {
        // Landlock first: the filter may refuse what it needs.
        let landlock = files::enter(self)?;
        let seccomp = calls::enter(self)?;
        Ok(Enforced { landlock, seccomp })
    }

    /// Starts a program in it; the caller stays outside.
    ///
    /// # Errors
    /// IO; the kernel refuses the jail.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        std::thread::scope(|scope| {
            let inside = || {
                self.enter()?;
                command.spawn()
            };
            let thread = std::thread::Builder::new().name("jail".to_owned());
            let thread = thread.spawn_scoped(scope, inside)?;
            let broken = |_| io::Error::other("the thread that enters the jail broke");
            thread.join().map_err(broken)?
        })
    }
}
