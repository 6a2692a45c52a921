//! A host without troubles of its own, for tests that show that an agent has none: this one's kernel as it is, but for its log
//! and for how long tasks waited for disks and memory, which on a busy machine is a finding.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Makes it in `folder`; gives the line `roots` for section `agent` of the configuration.
///
/// # Errors
/// If something cannot be read or made.
pub fn host(folder: &Path) -> io::Result<String> {
    let (proc, dev) = (folder.join("proc"), folder.join("dev"));
    for (here, there, without) in [("/proc", &proc, "pressure"), ("/dev", &dev, "kmsg")] {
        fs::create_dir_all(there)?;
        for entry in fs::read_dir(here)? {
            let entry = entry?;
            let name = entry.file_name();
            let process = name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
            if !process && name != without {
                symlink(entry.path(), there.join(&name))?;
            }
        }
    }
    fs::write(dev.join("kmsg"), "")?;
    let (proc, dev) = (proc.display(), dev.display());
    Ok(format!("  roots: {{proc: {proc}, dev: {dev}}}\n"))
}
