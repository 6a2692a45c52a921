//! Which boot of the host this is.

use std::path::Path;

use crate::probe::boot_id;
use crate::probe::process::started;

/// Between the kernel's name and this process's start, where the first process is hidden.
const HIDDEN: char = '?';

/// A name of this boot: the kernel's, and when the first process was started. A container shares the former with its host
/// and has a first process of its own; where `/proc` hides that one (`hidepid`), it is a name for this process alone.
#[must_use]
pub fn boot(proc: &Path) -> Option<String> {
    let id = boot_id(proc)?;
    Some(match started(&proc.join("1")) {
        Some(first) => format!("{id}/{first}"),
        None => format!("{id}{HIDDEN}{}", started(&proc.join("self"))?),
    })
}

/// Whether the host has been down between both; none where that cannot be told: a container starts anew on the same kernel,
/// and `/proc` hides its first process.
#[must_use]
pub fn is_another(before: &str, now: &str) -> Option<bool> {
    let kernel = |name: &str| name.split(['/', HIDDEN]).next().unwrap_or_default().to_owned();
    // An earlier version gave the kernel's name alone.
    let hidden = |name: &str| !name.contains('/');
    if before == now {
        Some(false)
    } else if kernel(before) != kernel(now) {
        Some(true)
    } else if hidden(before) || hidden(now) {
        None
    } else {
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_container_that_starts_again_is_another_boot_on_the_same_kernel() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(boot(proc.path()), None);
        fs::create_dir_all(proc.path().join("sys/kernel/random")).unwrap();
        fs::create_dir(proc.path().join("1")).unwrap();
        fs::write(proc.path().join("sys/kernel/random/boot_id"), "b-1\n").unwrap();
        assert_eq!(boot(proc.path()), None);
        let at = |process: &str, started: u32| {
            let stat = format!("1 (a) b) S 0 1 1 0 -1 4194560 9 9 9 9 3 3 3 3 20 0 1 0 {started} 1 2 3\n");
            fs::create_dir_all(proc.path().join(process)).unwrap();
            fs::write(proc.path().join(process).join("stat"), stat).unwrap();
            boot(proc.path())
        };
        assert_eq!(at("self", 77).as_deref(), Some("b-1?77"));
        assert_eq!(at("1", 12).as_deref(), Some("b-1/12"));
        assert_eq!(at("1", 9000).as_deref(), Some("b-1/9000"));
    }

    #[test]
    fn where_the_first_process_is_hidden_only_another_kernel_is_known_as_another_boot() {
        for (before, now, another) in [
            ("b-1/12", "b-1/12", Some(false)),
            ("b-1/12", "b-1/9000", Some(true)),
            ("b-1/12", "b-2/12", Some(true)),
            // The same process of the agent has lived meanwhile.
            ("b-1?77", "b-1?77", Some(false)),
            ("b-1?77", "b-1?80", None),
            ("b-1?77", "b-2?77", Some(true)),
            ("b-1/12", "b-1?77", None),
            ("b-1?77", "b-1/12", None),
            // As an earlier version wrote it.
            ("b-1", "b-1?77", None),
            ("b-1", "b-2?77", Some(true)),
        ] {
            assert_eq!(is_another(before, now), another, "{before} {now}");
        }
    }
}
