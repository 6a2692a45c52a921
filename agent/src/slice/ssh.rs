//! SSH to a slice's machine: with its own terminal key, to the key that the machine was given, and nothing of the
//! user's or host's configuration.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use super::folder::SliceFolder;
use crate::task::exec::{ExecError, Program};

/// How long a connection may take.
const CONNECT_SECONDS: u32 = 5;

/// A program that runs `command` there; `command` is our own text.
///
/// # Errors
/// [`ExecError::Argument`].
pub fn program(
    ssh: &Path,
    folder: &SliceFolder,
    (user, address): (&str, Ipv4Addr),
    command: &'static str,
) -> Result<Program, ExecError> {
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    Ok(Program::new(ssh)
        .flag("-F")
        .flag("/dev/null")
        .flag("-T")
        .flag("-o")
        .flag("BatchMode=yes")
        .flag("-o")
        .flag("IdentitiesOnly=yes")
        .flag("-o")
        .flag("StrictHostKeyChecking=yes")
        .flag("-o")
        .flag("HostKeyAlgorithms=ssh-ed25519")
        .flag("-o")
        .flag("GlobalKnownHostsFile=/dev/null")
        .flag("-o")
        .flag("ServerAliveInterval=15")
        .flag("-o")
        .value(&format!("ConnectTimeout={CONNECT_SECONDS}"))?
        .flag("-o")
        .value(&option("UserKnownHostsFile", &folder.known_hosts()))?
        .flag("-o")
        .value(&option("IdentityFile", &folder.terminal_key()))?
        .flag("-l")
        .value(user)?
        .value(&address.to_string())?
        .flag(command)
        .within(Duration::from_secs(u64::from(CONNECT_SECONDS).saturating_mul(4))))
}
