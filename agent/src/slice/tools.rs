use std::path::{Path, PathBuf};

use hpc_schema::task::PackageName;

use crate::probe::tool::find;

/// The programs that slices need, by absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceTools {
    /// Asks libvirt.
    pub virsh: PathBuf,
    /// Makes domains.
    pub virt_install: PathBuf,
    /// Converts images.
    pub qemu_img: PathBuf,
    /// Writes ISO 9660.
    pub iso: PathBuf,
    /// Logs in.
    pub ssh: PathBuf,
    /// Wipes.
    pub blkdiscard: PathBuf,
    /// Asks Open vSwitch.
    pub ovs_vsctl: PathBuf,
    /// Fetches.
    pub curl: PathBuf,
    /// Bounds what is fetched.
    pub prlimit: PathBuf,
}

/// Programs that are not there, and the packages that have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The programs.
    pub programs: Vec<&'static str>,
    /// The packages, by the names of the system's distribution.
    pub packages: Vec<PackageName>,
}

/// Program, package of Debian and its kin, package of Red Hat and its kin.
const NEEDED: [(&str, &str, &str); 9] = [
    ("virsh", "libvirt-clients", "libvirt-client"),
    ("virt-install", "virtinst", "virt-install"),
    ("qemu-img", "qemu-utils", "qemu-img"),
    ("xorriso", "xorriso", "xorriso"),
    ("ssh", "openssh-client", "openssh-clients"),
    ("blkdiscard", "util-linux", "util-linux"),
    ("ovs-vsctl", "openvswitch-switch", "openvswitch"),
    ("curl", "curl", "curl"),
    ("prlimit", "util-linux", "util-linux"),
];

impl SliceTools {
    /// Looks for them: in `folder` if one is named, else where systems install programs.
    ///
    /// # Errors
    /// All that are missing.
    pub fn find(folder: Option<&Path>) -> Result<Self, Missing> {
        let at = |name: &str| find(name, folder);
        let apt = find("apt-get", None).is_some();
        let mut missing = Missing {
            programs: Vec::new(),
            packages: Vec::new(),
        };
        for (program, debian, red_hat) in NEEDED {
            if at(program).is_none() {
                missing.programs.push(program);
                let name = if apt { debian } else { red_hat };
                let name = name.parse::<PackageName>().ok();
                let new = name.filter(|n| !missing.packages.contains(n));
                missing.packages.extend(new);
            }
        }
        let found = || {
            Some(Self {
                virsh: at("virsh")?,
                virt_install: at("virt-install")?,
                qemu_img: at("qemu-img")?,
                iso: at("xorriso")?,
                ssh: at("ssh")?,
                blkdiscard: at("blkdiscard")?,
                ovs_vsctl: at("ovs-vsctl")?,
                curl: at("curl")?,
                prlimit: at("prlimit")?,
            })
        };
        found().ok_or(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_missing_is_named_with_its_packages() {
        let dir = tempfile::tempdir().unwrap();
        let missing = SliceTools::find(Some(dir.path())).unwrap_err();
        assert_eq!(missing.programs.len(), NEEDED.len());
        // Two of them are in one package.
        assert_eq!(missing.packages.len(), NEEDED.len() - 1);
    }
}
