//! A control group for each program that a task runs, where the host has control groups and lets us.

use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::cgroup::{Group, Limits};
use crate::probe::names_in;

/// Folder of these groups, below each hierarchy.
const PROGRAMS: &str = "virtengine-programs";
const ROOT: &str = "/sys/fs/cgroup";
/// What a program may take unless told otherwise: 2 GiB, four processors, 512 processes and threads.
pub(super) const PROGRAM: Limits = Limits {
    memory: 2 << 30,
    cpu: 400,
    pids: 512,
};

/// A program's group. Given up when dropped; one in which a program has left something is given up by the next agent.
#[derive(Debug)]
pub(super) struct Limited(Group);

impl Limited {
    /// Makes one with these limits; the controllers that cannot be set do not hold.
    pub(super) fn new(limits: Limits) -> Self {
        static SWEPT: Once = Once::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SWEPT.call_once(|| sweep(Path::new(ROOT)));
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let group = Group::new(Path::new(ROOT), PROGRAMS, &name);
        group.make(limits);
        Self(group)
    }

    /// Puts the program in.
    pub(super) fn admit(&self, pid: u32) {
        // Without control groups it runs without.
        if let Err(e) = self.0.admit(pid) {
            tracing::debug!("a program is in no control group: {e}");
        }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.0.discard();
    }
}

/// Gives up what agents have left that do not run any more.
fn sweep(root: &Path) {
    for hierarchy in ["", "memory", "cpu", "pids"] {
        for name in names_in(&root.join(hierarchy).join(PROGRAMS)) {
            let pid = name.split('-').next().unwrap_or_default();
            if !pid.is_empty() && !Path::new("/proc").join(pid).exists() {
                Group::new(root, PROGRAMS, &name).discard();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::exec::Program;
    use crate::task::stop::Stop;

    #[test]
    fn a_program_runs_in_a_group_of_its_own_that_is_gone_afterwards() {
        let stop = Stop::after(std::time::Duration::from_secs(30));
        let out = Program::new(Path::new("/bin/cat"))
            // It waits for the end of its input before it looks: by then it is in its group.
            .value("/dev/stdin")
            .unwrap()
            .value("/proc/self/cgroup")
            .unwrap()
            .run(&stop)
            .unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        let may = Group::new(Path::new(ROOT), PROGRAMS, "probe");
        let holding = may.make(PROGRAM);
        may.discard();
        // Only root, and only where there are control groups.
        assert_eq!(said.contains(PROGRAMS), !holding.is_empty(), "{said}");
        let group = said.lines().find_map(|l| {
            l.split('/')
                .find(|p| p.starts_with(&format!("{}-", std::process::id())))
        });
        if let Some(name) = group {
            assert!(!Group::new(Path::new(ROOT), PROGRAMS, name).exists(), "{name}");
        }
    }
}
