//! What `selftest --sandbox` tries from within each jail: what the kernel must refuse, and what it must not.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

use super::{Enforced, Jail};

/// The hidden command that enters a jail and tries.
pub const TRIAL_COMMAND: &str = "sandbox-try";

/// The jails that can be tried.
pub const JAILS: [&str; 5] = ["acting", "link", "writes", "machine", "system"];

/// What was tried in a jail, and what of it the kernel enforces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// What this kernel has.
    pub enforced: Enforced,
    /// Each attempt.
    pub attempts: Vec<Attempt>,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// In which jail.
    pub jail: String,
    /// What was tried.
    pub what: String,
    /// Whether it must be refused.
    pub forbidden: bool,
    /// The kernel's word; none if it went well.
    pub refusal: Option<String>,
    /// What must have refused it.
    pub by: By,
}

/// Which of the kernel's two guards something falls to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Files and ports.
    Landlock,
    /// Calls and sockets.
    Seccomp,
}

impl Attempt {
    /// Whether it went as it has to. Only the kernel's own refusal counts, not that there was nothing to find.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.forbidden == self.refusal.is_some()
    }
}

struct Trial {
    jail: &'static str,
    done: Vec<Attempt>,
}

impl Trial {
    fn tried<T>(&mut self, forbidden: bool, by: By, what: &str, result: io::Result<T>) {
        let refused = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        // Another failure means that the kernel would have let it through.
        let refusal = result
            .err()
            .filter(|e| refused(e) || !forbidden)
            .map(|e| e.to_string());
        self.done.push(Attempt {
            jail: self.jail.to_owned(),
            what: what.to_owned(),
            forbidden,
            refusal,
            by,
        });
    }

    fn forbidden<T>(&mut self, by: By, what: &str, result: io::Result<T>) {
        self.tried(true, by, what, result);
    }

    fn allowed<T>(&mut self, by: By, what: &str, result: io::Result<T>) {
        self.tried(false, by, what, result);
    }

    /// Calls that are refused in every jail. Each has arguments with which it would do nothing if it were let through.
    fn calls(&mut self) {
        use By::Seccomp;
        let nowhere = "/nonexistent/virtengine";
        let root = rustix::process::pivot_root(nowhere, nowhere);
        self.forbidden(Seccomp, "pivot_root", root.map_err(Into::into));
        // Longer than any name of a host.
        let named = rustix::system::sethostname(&[b'x'; 65]);
        self.forbidden(Seccomp, "sethostname", named.map_err(Into::into));
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // No clock of this kind can be set.
        let set = rustix::time::clock_settime(rustix::time::ClockId::Monotonic, now);
        self.forbidden(Seccomp, "clock_settime", set.map_err(Into::into));
    }

    fn sockets(&mut self, network: bool) {
        use By::Seccomp;
        let packet = socket(AddressFamily::PACKET, SocketType::RAW, None);
        self.forbidden(Seccomp, "socket(AF_PACKET)", packet.map_err(Into::into));
        let bluetooth = socket(AddressFamily::BLUETOOTH, SocketType::RAW, None);
        self.forbidden(Seccomp, "socket(AF_BLUETOOTH)", bluetooth.map_err(Into::into));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        self.tried(!network, Seccomp, "socket(AF_INET), UDP", udp);
        let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None);
        self.allowed(Seccomp, "socket(AF_UNIX)", unix.map_err(Into::into));
    }
}

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Enters the jail of this name and tries. `place` is a folder of three: `allowed`, `forbidden`, `secret`.
///
/// # Errors
/// There is no such jail, or the kernel refuses it.
pub fn attempts(jail: &str, place: &Path) -> io::Result<Tried> {
    use By::{Landlock, Seccomp};
    let (allowed, forbidden, secret) = (
        place.join("allowed"),
        place.join("forbidden"),
        place.join("secret"),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (open, closed) = (listener.local_addr()?, closed.local_addr()?);
    let (name, entered) = match jail {
        "acting" => ("acting", Jail::Acting),
        "link" => (
            "link",
            Jail::Link {
                reads: vec![allowed.clone()],
                writes: Vec::new(),
                ports: vec![open.port()],
            },
        ),
        "writes" => ("writes", Jail::Writes(vec![allowed.clone()])),
        "machine" => ("machine", Jail::Machine(allowed.clone())),
        "system" => ("system", Jail::System),
        other => return Err(io::Error::other(format!("there is no jail {other}"))),
    };
    let enforced = entered.enter()?;
    let mut trial = Trial {
        jail: name,
        done: Vec::new(),
    };
    trial.calls();
    match &entered {
        Jail::Acting => {
            trial.allowed(Seccomp, "exec /bin/true", Command::new("/bin/true").status());
            trial.allowed(Landlock, "read a file", fs::read(secret.join("file")));
        }
        Jail::Link { .. } => {
            trial.sockets(true);
            trial.forbidden(Seccomp, "exec /bin/true", Command::new("/bin/true").status());
            trial.forbidden(Landlock, "read a file of others", fs::read(secret.join("file")));
            trial.forbidden(Landlock, "read /etc/passwd", fs::read("/etc/passwd"));
            trial.forbidden(Landlock, "make a file", make(&allowed.join("link")));
            trial.forbidden(Landlock, "connect to another port", TcpStream::connect(closed));
            trial.forbidden(Landlock, "listen", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
            trial.allowed(Landlock, "read its own file", fs::read(allowed.join("file")));
            trial.allowed(
                Landlock,
                "connect to the gateway's port",
                TcpStream::connect(open),
            );
        }
        Jail::Writes(_) | Jail::Machine(_) => {
            let network = matches!(entered, Jail::Machine(_));
            trial.sockets(network);
            trial.forbidden(Landlock, "make a file elsewhere", make(&forbidden.join("file")));
            let changed = OpenOptions::new().append(true).open(secret.join("file"));
            trial.forbidden(Landlock, "change a file elsewhere", changed);
            let removed = fs::remove_file(secret.join("file"));
            trial.forbidden(Landlock, "remove a file elsewhere", removed);
            let moved = fs::rename(allowed.join("file"), forbidden.join("moved"));
            trial.forbidden(Landlock, "move a file elsewhere", moved.map_err(exdev));
            trial.allowed(Landlock, "make a file where it may", make(&allowed.join(name)));
            let listener = UnixListener::bind(allowed.join(format!("{name}.sock")));
            trial.allowed(Landlock, "make a socket where it may", listener);
            trial.allowed(Landlock, "read a file", fs::read(secret.join("file")));
        }
        Jail::System => {
            let at = PathBuf::from("/boot/virtengine-selftest");
            trial.forbidden(Landlock, "make a file in /boot", make(&at));
            trial.allowed(Landlock, "make a file", make(&allowed.join(name)));
            trial.allowed(Seccomp, "exec /bin/true", Command::new("/bin/true").status());
        }
    }
    Ok(Tried {
        enforced,
        attempts: trial.done,
    })
}

/// Landlock says of a move across its bounds what file systems say.
fn exdev(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::EXDEV) {
        io::Error::from_raw_os_error(libc::EACCES)
    } else {
        e
    }
}
