//! What the agent needs of this host.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::Check;
use super::user::User;
use crate::accel::Accel;
use crate::config::Config;
use crate::key::Place;
use crate::probe::memory::MemoryProbe;
use crate::probe::tool::find;
use crate::probe::{Roots, line, names_in, storage};

const READ: u32 = 4;
const READ_WRITE: u32 = 6;
/// Below this the agent's own files are in danger.
const LEAST_SPACE: u64 = 64 << 20;

/// The state directory: there, the service's, with room.
pub(super) fn state_dir(config: &Config, user: &User) -> Check {
    let code = "state_dir";
    let dir = &config.state_dir;
    let shown = dir.display();
    match user.may(dir, 7) {
        None => Check::note(
            code,
            format!("{shown} is not there yet"),
            "register makes it; a package or the installer makes it for the service's user",
        ),
        Some(false) => Check::wrong(
            code,
            format!("{} may not write {shown}", user.name),
            format!("chown -R {} {shown}", user.name),
        ),
        Some(true) => match storage::read(dir).map(|s| s.available) {
            Some(bytes) if bytes < LEAST_SPACE => Check::wrong(
                code,
                format!("{} MiB are free below {shown}", bytes >> 20),
                "free some space there, or set another agent.state_dir",
            ),
            _ => Check::good(code, format!("{shown}, of {}", user.name)),
        },
    }
}

/// Memory as it is reported beside what the kernel says by another way (`sysinfo`).
pub(super) fn memory(roots: &Roots) -> Check {
    let code = "memory_figure";
    let Some(read) = MemoryProbe::new(roots).read() else {
        return Check::wrong(
            code,
            format!("{} cannot be read", roots.proc.join("meminfo").display()),
            "check agent.roots.proc; in a container, mount the host's /proc there",
        );
    };
    let mib = read.total >> 20;
    if *roots != Roots::default() {
        return Check::good(code, format!("{mib} MiB"));
    }
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    let total = info.totalram.saturating_mul(unit);
    if total.abs_diff(read.total) <= total / 100 {
        Check::good(code, format!("{mib} MiB, as the kernel has it"))
    } else {
        Check::wrong(
            code,
            format!("/proc/meminfo says {mib} MiB, the kernel {} MiB", total >> 20),
            "is /proc that of another system (lxcfs)? set agent.roots.proc to the host's",
        )
    }
}

/// The kernel's log, where errors are counted.
pub(super) fn kernel_log(roots: &Roots, user: &User) -> Check {
    let code = "kernel_log";
    let path = roots.dev.join("kmsg");
    let restricted = line(&roots.proc.join("sys/kernel/dmesg_restrict")).as_deref() == Some("1");
    match user.may(&path, READ) {
        None => Check::note(
            code,
            format!(
                "{} is not there: errors and warnings are not counted",
                path.display()
            ),
            "in a container, hand it in",
        ),
        Some(false) => Check::note(
            code,
            format!("{} may not read {}", user.name, path.display()),
            "chmod a+r it: the unit's CAP_SYSLOG does the rest",
        ),
        Some(true) if restricted && user.uid != 0 => {
            Check::good(code, "readable with CAP_SYSLOG, which the unit gives")
        }
        Some(true) => Check::good(code, "readable"),
    }
}

/// The journal, where services' errors are counted.
pub(super) fn journal(roots: &Roots, user: &User) -> Check {
    let code = "journal_access";
    let systemd = line(&roots.proc.join("1/comm")).as_deref() == Some("systemd");
    if !systemd || find("journalctl", None).is_none() {
        return Check::skipped(code, "no systemd, no journal");
    }
    if ["systemd-journal", "adm", "wheel"].iter().any(|g| user.is_in(g)) {
        Check::good(code, format!("{} reads the journal", user.name))
    } else {
        Check::wrong(
            code,
            format!(
                "{} may not read the journal: errors of services are not counted",
                user.name
            ),
            format!(
                "usermod --append --groups systemd-journal {}; systemctl restart virtengine-node-agent",
                user.name
            ),
        )
    }
}

/// The counters of energy (RAPL), which the kernel shows to root alone.
pub(super) fn energy(roots: &Roots, user: &User) -> Check {
    let code = "rapl_access";
    let class = roots.sys.join("class/powercap");
    let zones = names_in(&class)
        .into_iter()
        .filter(|n| n.starts_with("intel-rapl:"));
    let may: Vec<bool> = zones
        .filter_map(|n| user.may(&class.join(n).join("energy_uj"), READ))
        .collect();
    if may.is_empty() {
        return Check::skipped(code, "no counters of energy (RAPL) here");
    }
    if may.into_iter().all(|may| may) {
        return Check::good(code, format!("{} reads the counters of energy", user.name));
    }
    Check::note(
        code,
        format!(
            "{} may not read {}/intel-rapl:*/energy_uj: the power of CPUs and memory is not known",
            user.name,
            class.display()
        ),
        "udevadm control --reload; udevadm trigger --subsystem-match=powercap; where neither /etc/udev/rules.d nor /usr/lib/udev/rules.d has 60-virtengine-node-agent.rules, install the package again (or run virtengine-node-agent install)",
    )
}

/// The accelerator that is wanted, and those that work.
pub(super) fn accel(wanted: Option<Accel>, supported: &[Accel]) -> Check {
    let code = "accel";
    let known: Vec<&str> = supported.iter().map(|a| a.as_str()).collect();
    let known = known.join(", ");
    match wanted {
        Some(wanted) if supported.contains(&wanted) => {
            Check::good(code, format!("{}, as wanted", wanted.as_str()))
        }
        Some(wanted) => Check::wrong(
            code,
            format!(
                "selected_accel {} not supported by host; supported: {}",
                wanted.as_str(),
                if known.is_empty() { "none" } else { &known }
            ),
            "install QEMU, enable virtualisation in the firmware, or leave NODE_AGENT_QEMU_ACCEL out: a machine takes what is proven by use",
        ),
        None if supported.is_empty() => Check::skipped(code, "no QEMU: no virtual machines on this node"),
        None => Check::good(code, known),
    }
}

/// `/dev/kvm`, where it is there at all: the task agent starts machines as users of their own, with the device's group
/// unless that is root's.
pub(super) fn kvm(roots: &Roots) -> Check {
    let code = "kvm_permission";
    let path = roots.dev.join("kvm");
    let Ok(meta) = std::fs::metadata(&path) else {
        return Check::skipped(code, "no /dev/kvm here");
    };
    let (shown, gid, mode) = (path.display(), meta.gid(), meta.mode());
    let bits = if gid == 0 { mode } else { mode >> 3 };
    if bits & READ_WRITE == READ_WRITE {
        return Check::good(code, format!("virtual machines may open {shown}"));
    }
    let why = if gid == 0 {
        "its group is root's, which no machine gets"
    } else {
        "its group may not read and write it"
    };
    Check::note(
        code,
        format!("virtual machines run without {shown}: {why}"),
        format!(
            "chgrp kvm {shown} && chmod 0660 {shown}; for good by a udev rule: KERNEL==\"kvm\", GROUP=\"kvm\", MODE=\"0660\""
        ),
    )
}

/// The TPM's device, where the key is sealed by it.
pub(super) fn tpm(config: &Config, user: &User) -> Check {
    let code = "tpm_access";
    let Ok((_, Place::Tpm2 { tcti, .. })) = crate::key::describe(&config.key_path) else {
        return Check::skipped(code, "the key is not sealed by a TPM");
    };
    let Some(path) = tcti.strip_prefix("device:").map(PathBuf::from) else {
        return Check::skipped(code, format!("{tcti} is no device"));
    };
    match user.may(&path, READ_WRITE) {
        None => Check::wrong(
            code,
            format!("{} is not there: the key cannot be unsealed", path.display()),
            "enable the TPM in the firmware; a key of another machine is worth nothing here",
        ),
        Some(true) => Check::good(code, format!("{} may open {}", user.name, path.display())),
        Some(false) => Check::wrong(
            code,
            format!(
                "{} may not open {}: the key cannot be unsealed",
                user.name,
                path.display()
            ),
            format!(
                "usermod --append --groups tss {}; systemctl restart virtengine-node-agent",
                user.name
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn counters_of_energy_that_root_alone_reads_are_noted_with_the_rule_that_helps() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, user) = nobody(dir.path());
        assert_eq!(energy(&roots, &user).grade, Grade::Skipped);
        let counters = ["intel-rapl:0", "intel-rapl:0:0"].map(|zone| {
            let folder = roots.sys.join("class/powercap").join(zone);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("energy_uj"), "1\n").unwrap();
            folder.join("energy_uj")
        });
        let set = |at: usize, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&counters[at], mode).unwrap();
        };
        set(0, 0o400);
        set(1, 0o444);
        let c = energy(&roots, &user);
        assert_eq!(c.grade, Grade::Note);
        assert!(c.remedy.unwrap().contains("udevadm trigger"));
        set(0, 0o444);
        assert_eq!(energy(&roots, &user).grade, Grade::Good);
    }

    fn nobody(dir: &std::path::Path) -> (Roots, User) {
        let roots = Roots::below(dir);
        for folder in [&roots.proc, &roots.dev, &roots.etc] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::create_dir_all(roots.proc.join("1")).unwrap();
        std::fs::write(roots.proc.join("1/comm"), "init\n").unwrap();
        let file = crate::config::parse(
            "provider_daemon: {endpoint: 'https://a:1'}\nagent: {state_dir: /nonexistent, key_path: /nonexistent/k}",
            std::path::Path::new("f"),
        );
        let config = crate::config::resolve(file.unwrap()).unwrap();
        let mut user = User::of_service(&config);
        user.uid = 4242;
        user.name = "virtengine".into();
        (roots, user)
    }

    #[test]
    fn an_accelerator_that_is_wanted_and_does_not_work_is_wrong_in_the_runbooks_words() {
        let c = accel(Some(Accel::Kvm), &[Accel::Tcg]);
        assert_eq!(c.grade, Grade::Wrong);
        assert!(
            c.message.starts_with("selected_accel kvm not supported by host"),
            "{}",
            c.message
        );
        assert_eq!(accel(Some(Accel::Tcg), &[Accel::Tcg]).grade, Grade::Good);
        assert_eq!(accel(None, &[]).grade, Grade::Skipped);
    }

    #[test]
    fn a_machine_opens_kvm_by_the_devices_group_unless_that_is_roots() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, _) = nobody(dir.path());
        assert_eq!(kvm(&roots).grade, Grade::Skipped);
        let path = roots.dev.join("kvm");
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        let c = kvm(&roots);
        assert_eq!(c.grade, Grade::Note);
        assert!(c.remedy.unwrap().contains("chgrp kvm"));
        mode(0o666);
        assert_eq!(kvm(&roots).grade, Grade::Good);
        // By the group alone, unless that is root's: who asks is nobody that starts a machine.
        mode(0o660);
        let root = std::fs::metadata(&path).unwrap().gid() == 0;
        assert_eq!(kvm(&roots).grade, if root { Grade::Note } else { Grade::Good });
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, None, Some(4242)).unwrap();
            assert_eq!(kvm(&roots).grade, Grade::Good);
            mode(0o640);
            assert!(kvm(&roots).message.contains("may not read and write"));
        }
    }

    #[test]
    fn without_systemd_there_is_no_journal_and_with_it_the_service_must_be_in_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, user) = nobody(dir.path());
        assert_eq!(journal(&roots, &user).grade, Grade::Skipped);
        std::fs::write(roots.proc.join("1/comm"), "systemd\n").unwrap();
        if find("journalctl", None).is_some() {
            let c = journal(&roots, &user);
            assert_eq!((c.grade, c.code), (Grade::Wrong, "journal_access"));
            assert!(c.remedy.unwrap().contains("--groups systemd-journal virtengine"));
        }
    }

    #[test]
    fn memory_is_that_of_the_kernel_and_an_unreadable_tree_is_wrong() {
        assert_eq!(memory(&Roots::default()).grade, Grade::Good);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(memory(&Roots::below(dir.path())).grade, Grade::Wrong);
    }
}
