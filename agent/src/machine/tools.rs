use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hpc_schema::code::Code;
use hpc_schema::task::Accel;

use crate::files::Owner;
use crate::probe::tool::find;
use crate::task::Failure;

/// The programs that machines need, by absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// QEMU for machines of this host's kind.
    pub qemu: PathBuf,
    /// `qemu-img`.
    pub image: PathBuf,
    /// Writes ISO 9660: `xorriso`, or what takes mkisofs' arguments.
    pub iso: PathBuf,
}

/// Programs that take mkisofs' arguments, the maintained one first.
const ISO: [&str; 3] = ["xorriso", "genisoimage", "mkisofs"];

impl Tools {
    /// Looks for them: in `folder` if one is named, else where systems install programs.
    ///
    /// # Errors
    /// The first that is missing, with the package that has it.
    pub fn find(folder: Option<&Path>) -> Result<Self, Failure> {
        let need = |names: &[&str], package: &str| {
            names.iter().find_map(|n| find(n, folder)).ok_or_else(|| {
                let name = names.first().copied().unwrap_or_default();
                let what = format!(
                    "{name} is not installed; install {package}, or set machines.programs of the policy"
                );
                Failure::new(Code::NotSupported, what)
            })
        };
        // The machine's arguments are those of a PC.
        if std::env::consts::ARCH != "x86_64" {
            let what = format!("machines on {} are not supported", std::env::consts::ARCH);
            return Err(Failure::new(Code::NotSupported, what));
        }
        Ok(Self {
            qemu: need(&["qemu-system-x86_64"], "qemu-system-x86")?,
            image: need(&["qemu-img"], "qemu-utils")?,
            iso: need(&ISO, "xorriso")?,
        })
    }
}

/// Whom QEMU runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User(pub Option<Owner>);

impl User {
    /// The user of that name in `passwd`; where this process is not root, itself.
    ///
    /// # Errors
    /// There is no such user.
    pub fn named(etc: &Path, name: &str) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let text = crate::files::read_text(&etc.join("passwd"), 16 << 20)?;
        text.lines()
            .find_map(|l| entry(l, name))
            .map(|o| Self(Some(o)))
            .ok_or_else(|| {
                let what = format!("there is no user {name} to run QEMU as; set machines.user of the policy");
                Failure::new(Code::NotSupported, what)
            })
    }

    /// One that nobody else has, whether or not it has a name; where this process is not root, itself.
    #[must_use]
    pub fn own(id: u32) -> Self {
        let root = rustix::process::geteuid().is_root();
        Self(root.then_some(Owner { uid: id, gid: id }))
    }

    /// With the group that may use the accelerator.
    #[must_use]
    pub fn for_accel(self, dev: &Path, accel: Accel) -> Self {
        let group = match accel {
            // Root's group gives more than the device.
            Accel::Kvm => std::fs::metadata(dev.join("kvm"))
                .ok()
                .map(|m| m.gid())
                .filter(|gid| *gid != 0),
            _ => None,
        };
        Self(self.0.map(|o| Owner {
            gid: group.unwrap_or(o.gid),
            ..o
        }))
    }
}

/// `name:x:uid:gid:…`
fn entry(line: &str, name: &str) -> Option<Owner> {
    let mut fields = line.split(':');
    if fields.next() != Some(name) {
        return None;
    }
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Owner { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package_and_users_are_found_by_their_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let e = Tools::find(Some(dir.path())).unwrap_err();
        assert_eq!(e.code, Code::NotSupported);
        assert!(e.detail.contains("qemu-system-x86"), "{}", e.detail);
        assert_eq!(
            entry("nobody:x:65534:65533:n:/:/bin/false", "nobody"),
            Some(Owner {
                uid: 65534,
                gid: 65533
            })
        );
        assert_eq!(entry("nobody2:x:1:1::/:", "nobody"), None);
        assert_eq!(entry("nobody", "nobody"), None);
    }
}
