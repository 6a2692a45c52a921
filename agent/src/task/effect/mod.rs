//! What a task changes on the host: a closed list. Each effect can be written down before it is done, and found and
//! taken away afterwards by what was written down alone.

mod directory;
mod disk;
mod domain;
mod error;
mod fetched;
mod file;
mod lease;
pub mod machine;
mod mark;
mod passthrough;
mod place;
pub mod process;
mod produced;
mod user;

use serde::{Deserialize, Serialize};

pub use directory::Directory;
pub use disk::Disk;
pub use domain::Domain;
pub use error::EffectError;
pub use fetched::Fetched;
pub use file::File;
pub use lease::Lease;
pub use machine::Machine;
pub use mark::Mark;
pub use passthrough::Passthrough;
pub(super) use place::take_away;
pub use process::Process;
pub use produced::Produced;
pub use user::User;

use super::host::Host;
use super::stop::Stop;

/// One change of the host. No secret stands in it: it is written into the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// A folder.
    Directory(Directory),
    /// A file with given bytes.
    File(File),
    /// A file that a program writes.
    Produced(Produced),
    /// A file from elsewhere.
    Fetched(Fetched),
    /// A claim on something that only one may have.
    Lease(Lease),
    /// A process that goes on when the task has ended.
    Process(Process),
    /// A virtual machine.
    Machine(Machine),
    /// A user of the system.
    User(User),
    /// A PCI function that is handed through.
    Passthrough(Passthrough),
    /// A block device that a machine writes to.
    Disk(Disk),
    /// A domain of libvirt.
    Domain(Domain),
}

impl Effect {
    pub(super) fn act(&self) -> &dyn Act {
        match self {
            Self::Directory(e) => e,
            Self::File(e) => e,
            Self::Produced(e) => e,
            Self::Fetched(e) => e,
            Self::Lease(e) => e,
            Self::Process(e) => e,
            Self::Machine(e) => e,
            Self::User(e) => e,
            Self::Passthrough(e) => e,
            Self::Disk(e) => e,
            Self::Domain(e) => e,
        }
    }
}

macro_rules! effects {
    ($($name:ident)*) => {
        $(impl From<$name> for Effect {
            fn from(effect: $name) -> Self {
                Self::$name(effect)
            }
        })*
    };
}
effects!(Directory File Produced Fetched Lease Process Passthrough Disk Domain);

/// What identifies the thing that an effect made; written down before others can see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Trace {
    /// A file or folder.
    Inode {
        /// Its file system.
        dev: u64,
        /// Its number there.
        ino: u64,
        /// File, folder or link: its bits of the mode.
        kind: u32,
        /// UNIX seconds of its birth; 0 where the file system does not say.
        born: i64,
        /// Nanoseconds within that second.
        born_ns: u32,
    },
    /// A process: numbers are used again, the time of its start is not.
    Process {
        /// Its number.
        pid: u32,
        /// Clock ticks after boot.
        start: u64,
    },
    /// A user.
    User {
        /// Its id.
        uid: u32,
        /// Its group.
        gid: u32,
    },
}

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// What the effect made.
    Ours,
    /// Something else in its place.
    Foreign(String),
}

/// Where an effect acts.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The machine.
    pub host: &'a Host,
    /// Whose it is.
    pub mark: &'a Mark,
    /// When to give up; undoing has its own time.
    pub stop: &'a Stop,
}

/// Writes a trace down.
pub type Note<'a> = dyn FnMut(Trace) -> Result<(), EffectError> + 'a;

/// Doing, finding and undoing one effect.
pub trait Act {
    /// Does it. What it makes is noted before it has its name. Never replaces what is there.
    ///
    /// # Errors
    /// [`EffectError::Busy`] if something is in its place; whatever went wrong.
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError>;

    /// Takes it away if it is ours. Good if it is gone already.
    ///
    /// # Errors
    /// [`EffectError::Unknown`] if it cannot be established whose it is or whether it is gone.
    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError>;

    /// What is there now.
    ///
    /// # Errors
    /// If that cannot be seen.
    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError>;

    /// In a few words, for findings.
    fn shown(&self) -> String;
}
