//! Which boot of the host this is.

use std::path::Path;

use crate::probe::{boot_id, line};

/// A name of this boot: the kernel's, and when the first process was started. A container shares the former with its host
/// and has a first process of its own; where `/proc` hides that one (`hidepid`), the kernel's name has to do.
#[must_use]
pub fn boot(proc: &Path) -> Option<String> {
    let id = boot_id(proc)?;
    let stat = line(&proc.join("1/stat"));
    // The name of the program may hold anything; proc(5) counts the start as field 22, 20th behind it.
    let fields = stat.as_deref().and_then(|s| s.rsplit_once(')'));
    let started = fields.and_then(|(_, fields)| fields.split_ascii_whitespace().nth(19));
    Some(started.map_or_else(|| id.clone(), |at| format!("{id}/{at}")))
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
        assert_eq!(boot(proc.path()).as_deref(), Some("b-1"));
        let at = |started: u32| {
            let stat = format!("1 (a) b) S 0 1 1 0 -1 4194560 9 9 9 9 3 3 3 3 20 0 1 0 {started} 1 2 3\n");
            fs::write(proc.path().join("1/stat"), stat).unwrap();
            boot(proc.path())
        };
        assert_eq!(at(12).as_deref(), Some("b-1/12"));
        assert_eq!(at(9000).as_deref(), Some("b-1/9000"));
    }
}
