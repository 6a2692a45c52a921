//! seccomp: a filter of calls. What is refused ends with "operation not permitted", as without rights.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::Jail;

/// `kexec_file_load`: the C library's list for musl on arm64 lacks it.
#[cfg(all(target_arch = "aarch64", target_env = "musl"))]
const KEXEC_FILE_LOAD: i64 = 294;
#[cfg(not(all(target_arch = "aarch64", target_env = "musl")))]
const KEXEC_FILE_LOAD: i64 = libc::SYS_kexec_file_load;

/// Calls that no task needs, whoever makes them: other kernels, other processes' memory, the clock, mounts, new name
/// spaces, keys of the kernel, files by handle, and interfaces through which the kernel was often broken.
const NEVER: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    KEXEC_FILE_LOAD,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// What only programs of the system may call.
const MODULES: &[i64] = &[
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
];

#[cfg(target_arch = "x86_64")]
const PORTS: &[i64] = &[libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const PORTS: &[i64] = &[];

/// Takes the calling thread in; whether this kernel and processor have filters.
pub(super) fn enter(jail: &Jail) -> io::Result<bool> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(false);
    };
    if !std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        return Ok(false);
    }
    let program = filter(jail, arch).map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)?;
    Ok(true)
}

fn filter(jail: &Jail, arch: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |calls: &[i64]| rules.extend(calls.iter().map(|c| (*c, Vec::new())));
    refuse(NEVER);
    refuse(PORTS);
    let strict = matches!(jail, Jail::Link { .. } | Jail::Writes(_) | Jail::Machine(_));
    if strict {
        refuse(MODULES);
    }
    if matches!(jail, Jail::Link { .. }) {
        refuse(&[libc::SYS_execve, libc::SYS_execveat, libc::SYS_chroot]);
    }
    let families: &[i32] = match jail {
        // Of this host only; netlink is asked for names of users and for the audit log.
        Jail::Writes(_) => &[libc::AF_UNIX, libc::AF_NETLINK],
        Jail::Link { .. } | Jail::Machine(_) => {
            &[libc::AF_UNIX, libc::AF_NETLINK, libc::AF_INET, libc::AF_INET6]
        }
        Jail::Acting | Jail::System => &[],
    };
    if !families.is_empty() {
        let others = families.iter().map(|family| {
            let family = u64::try_from(*family).unwrap_or(u64::MAX);
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
        });
        let none_of_them = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
        rules.insert(libc::SYS_socket, vec![none_of_them]);
    }
    let refused = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()
}
