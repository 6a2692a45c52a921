//! Landlock: what files may be reached, and which TCP ports.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};

use super::Jail;
use crate::probe::names_in;

/// What is asked for; an older kernel enforces what it has.
const VERSION: ABI = ABI::V4;
/// What programs of the system need to read to run and to resolve names.
const NEEDED: [&str; 18] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/proc",
    "/dev/null",
    "/dev/urandom",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/run/systemd/resolve",
];
/// What programs write that change nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx"];
/// What no program writes that a task starts: other kernels. (Root's home has caches of libvirt's tools.)
const NEVER: [&str; 1] = ["boot"];

/// Takes the calling thread in; whether this kernel has Landlock.
pub(super) fn enter(jail: &Jail) -> io::Result<bool> {
    let status = match jail {
        Jail::Acting => return Ok(false),
        Jail::Link { reads, writes, ports } => link(reads, writes, ports),
        Jail::Writes(paths) => writing(paths.clone()),
        Jail::Machine(folder) => {
            let devices = ["/dev/kvm", "/dev/vfio", "/dev/vhost-net", "/dev/net/tun"];
            writing(
                devices
                    .iter()
                    .map(PathBuf::from)
                    .chain([folder.clone()])
                    .collect(),
            )
        }
        Jail::System => {
            let top = names_in(Path::new("/")).into_iter();
            let top = top.filter(|n| !NEVER.contains(&n.as_str()));
            writing(top.map(|n| Path::new("/").join(n)).collect())
        }
    };
    let status = status.map_err(io::Error::other)?;
    Ok(status != RulesetStatus::NotEnforced)
}

/// Reads all, writes below these.
fn writing(mut paths: Vec<PathBuf>) -> Result<RulesetStatus, RulesetError> {
    paths.extend(DEVICES.iter().map(PathBuf::from));
    let all = AccessFs::from_all(VERSION);
    let status = Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(VERSION)))?
        .add_rules(path_beneath_rules(paths, all))?
        .restrict_self()?;
    Ok(status.ruleset)
}

fn link(reads: &[PathBuf], writes: &[PathBuf], ports: &[u16]) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(VERSION);
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let ports = ports.iter().map(|p| Ok(NetPort::new(*p, AccessNet::ConnectTcp)));
    let status = Ruleset::default()
        .handle_access(all)?
        .handle_access(AccessNet::from_all(VERSION))?
        .create()?
        .add_rules(path_beneath_rules(NEEDED, read))?
        .add_rules(path_beneath_rules(reads, read))?
        .add_rules(path_beneath_rules(writes, all & !AccessFs::Execute))?
        .add_rules(path_beneath_rules(["/dev/null"], read | AccessFs::WriteFile))?
        .add_rules(ports.collect::<Vec<Result<NetPort, RulesetError>>>())?
        .restrict_self()?;
    Ok(status.ruleset)
}
