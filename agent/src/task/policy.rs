//! What the site allows: a file on the node that can narrow the catalogue, and nothing can widen.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::{Accel, BridgeName, HostPath, NodeMode, PackageName, TaskType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::config::ApiConfig;
use crate::files::{FileError, at, read_text};
use crate::slice::telemetry::Url;

const LIMIT: u64 = 64 << 10;

/// The policy file. What it does not name is not allowed; without a file only what changes nothing is.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// How the node is let; absent: neither way, so that tasks of either mode are refused.
    pub mode: Option<NodeMode>,
    /// Types that are allowed; absent: all of the mode, and those of any mode that change nothing.
    pub types: Option<Vec<TaskType>>,
    /// Virtual machines.
    pub machines: Machines,
    /// Slices.
    pub slices: Slices,
    /// Users of tenants.
    pub users: Users,
    /// What is done about what lies on the host and is in no journal.
    pub safety: Safety,
    /// Packages that `node.prerequisites_install` may install.
    pub packages: Vec<PackageName>,
}

/// Bounds of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Machines {
    /// Folders that images may lie in.
    pub image_directories: Vec<HostPath>,
    /// Hosts that images may be fetched from, as they stand in the URL, with the port if one does.
    pub image_hosts: Vec<String>,
    /// PEM of the CA of those hosts; absent: those that the system trusts.
    pub image_ca: Option<HostPath>,
    /// Largest image, GiB.
    pub max_image_gib: u32,
    /// Machines at one time.
    pub max_count: u32,
    /// Virtual CPUs of one machine.
    pub max_vcpus: u32,
    /// Memory of one machine, MiB.
    pub max_memory_mib: u32,
    /// Disk of one machine, GiB.
    pub max_disk_gib: u32,
    /// Longest lease, seconds.
    pub max_lease_seconds: u64,
    /// Processors that are kept for the host.
    pub reserve_vcpus: u32,
    /// Memory that is kept for the host, MiB.
    pub reserve_memory_mib: u32,
    /// Whether a machine may have this host's network.
    pub user_network: bool,
    /// How machines run that ask for `auto`.
    pub accel: Accel,
    /// Kernel that accelerators are tried with; absent: the host's own in `/boot`.
    pub probe_kernel: Option<HostPath>,
    /// Folder of QEMU's programs and the ISO writer; absent: where systems install them.
    pub programs: Option<HostPath>,
    /// Whom QEMU runs as, where the agent is root; absent: each machine as a user of its own.
    pub user: Option<String>,
    /// Lowest id of machines' own users.
    pub min_uid: u32,
    /// Highest of them; what accelerators are tried with has this one.
    pub max_uid: u32,
}

impl Default for Machines {
    fn default() -> Self {
        let folder = |s: &str| s.parse().ok();
        Self {
            // Specification 003, "Sandboxed paths".
            image_directories: ["/var/lib/gpuaas/slice-images", "/var/lib/libvirt/images"]
                .into_iter()
                .filter_map(folder)
                .collect(),
            image_hosts: Vec::new(),
            image_ca: None,
            max_image_gib: 64,
            max_count: 16,
            max_vcpus: 256,
            max_memory_mib: 2_097_152,
            max_disk_gib: 4096,
            max_lease_seconds: 604_800,
            reserve_vcpus: 0,
            reserve_memory_mib: 1024,
            user_network: false,
            accel: Accel::Auto,
            probe_kernel: None,
            programs: None,
            user: None,
            // What no distribution, user name space or container has (systemd, "Users, Groups, UIDs and GIDs").
            min_uid: 2_000_000_000,
            max_uid: 2_000_065_535,
        }
    }
}

/// What is done about what lies on the host, carries our mark, and is in no journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Safety {
    /// Minutes between two looks.
    pub every_minutes: u32,
    /// How far it goes.
    pub orphans: Orphans,
    /// What was set aside is removed after so many hours, with `orphans: remove`.
    pub remove_after_hours: u32,
}

impl Default for Safety {
    fn default() -> Self {
        Self {
            every_minutes: 10,
            orphans: Orphans::Quarantine,
            remove_after_hours: 168,
        }
    }
}

/// Slices' machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Slices {
    /// What names of block devices begin with that may be let: what is written onto them is lost.
    pub devices: Vec<HostPath>,
    /// Bridges that machines may hang on; absent: all of Open vSwitch.
    pub bridges: Option<Vec<BridgeName>>,
    /// Folder that dnsmasq reads by `--dhcp-hostsdir`.
    pub dhcp_hosts: Option<HostPath>,
    /// Folder of targets that Prometheus reads by `file_sd_configs`.
    pub telemetry: Option<HostPath>,
    /// Port of the guests' own exporter; absent: it is not asked.
    pub exporter_port: Option<u16>,
    /// Where Prometheus reaches the agent's local interface, for libvirt's statistics of each machine; absent: where
    /// `api.listen` says.
    pub statistics: Option<Url>,
    /// Whether this host can ask there itself: nothing is asked for before it answers.
    #[serde(skip)]
    pub statistics_open: bool,
    /// What the driver of a GPU consists of, for `driver_strategy: cloud-init`.
    pub driver_packages: Vec<PackageName>,
    /// Whether a machine's provision installs what is missing, of `packages`.
    pub install_dependencies: bool,
}

impl Default for Slices {
    fn default() -> Self {
        let path = |s: &str| s.parse().ok();
        Self {
            devices: path("/dev/disk/by-id/nvme-").into_iter().collect(),
            bridges: None,
            dhcp_hosts: path("/var/lib/virtengine/dhcp-hosts"),
            telemetry: path("/var/lib/virtengine/telemetry"),
            exporter_port: None,
            statistics: None,
            statistics_open: false,
            driver_packages: Vec::new(),
            install_dependencies: false,
        }
    }
}

/// How far the safety loop goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Orphans {
    /// They are reported.
    Report,
    /// And set aside: processes stopped, accounts locked, folders moved to `quarantine`.
    Quarantine,
    /// And removed later.
    Remove,
}

/// Bounds of tenants' users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Users {
    /// Lowest id.
    pub min_uid: u32,
    /// Highest id.
    pub max_uid: u32,
    /// Folder of homes; absent: `/home`.
    pub home: Option<HostPath>,
    /// What users log in to; absent: `/bin/bash`.
    pub shell: Option<HostPath>,
}

impl Default for Users {
    fn default() -> Self {
        Self {
            min_uid: 20_000,
            max_uid: 29_999,
            home: None,
            shell: None,
        }
    }
}

impl Policy {
    /// Reads the file. It is the site's: of root or of this user, and nobody else may write it.
    ///
    /// # Errors
    /// IO, form; a file that others may write.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let meta = std::fs::metadata(path).map_err(at("read", path))?;
        let ours = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
        if !ours || meta.permissions().mode() & 0o022 != 0 {
            let what = "must belong to root and be writable by nobody else; chown root and chmod 644";
            return Err(at("use", path)(std::io::Error::other(what)));
        }
        let text = read_text(path, LIMIT)?;
        serde_yaml_ng::from_str(&text).map_err(|e| at("read", path)(std::io::Error::other(e.to_string())))
    }

    /// Where libvirt's statistics are shown, if the policy does not say.
    pub fn shown_by(&mut self, api: &ApiConfig, host: &str) {
        let Some(listen) = api.listen else { return };
        self.slices.statistics_open =
            api.tls.is_none() && api.token_file.is_none() && self.slices.statistics.is_none();
        self.slices
            .statistics
            .get_or_insert_with(|| Url::of(listen, api.tls.is_some(), host));
    }

    /// Whether tasks of this type are allowed at all.
    ///
    /// # Errors
    /// [`Code::WrongMode`], [`Code::PolicyDenied`].
    pub fn allows(&self, kind: TaskType) -> Result<(), Failure> {
        if let Some(wanted) = kind.mode()
            && self.mode != Some(wanted)
        {
            let word = |mode| match mode {
                Some(NodeMode::Slice) => "slice",
                Some(NodeMode::WholeNode) => "whole_node",
                None => "none",
            };
            let what = format!(
                "{kind} needs a node in mode {}; this node's is {}",
                word(Some(wanted)),
                word(self.mode)
            );
            return Err(Failure::new(Code::WrongMode, what));
        }
        let named = match &self.types {
            Some(types) => types.contains(&kind),
            None => kind.mode().is_some() || !kind.mutates(),
        };
        if named {
            return Ok(());
        }
        let what = format!("{kind} is not among the types that this site allows");
        Err(Failure::new(Code::PolicyDenied, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Policy {
        serde_yaml_ng::from_str(text).unwrap()
    }

    #[test]
    fn without_a_policy_only_what_changes_nothing_is_allowed() {
        let policy = Policy::default();
        for kind in TaskType::ALL.iter().copied() {
            assert_eq!(policy.allows(kind).is_ok(), !kind.mutates(), "{kind}");
        }
    }

    #[test]
    fn a_policy_narrows_and_the_mode_parts_the_catalogue() {
        let slice = read("mode: slice");
        assert!(slice.allows(TaskType::VmLaunch).is_ok());
        let e = slice.allows(TaskType::AllocationProvisionUser).unwrap_err();
        assert_eq!(e.code, Code::WrongMode);
        // Installing packages is never meant by silence.
        let e = slice.allows(TaskType::NodePrerequisitesInstall).unwrap_err();
        assert_eq!(e.code, Code::PolicyDenied);
        let narrow = read("mode: whole_node\ntypes: [diag.health_probe]");
        assert!(narrow.allows(TaskType::DiagHealthProbe).is_ok());
        let e = narrow.allows(TaskType::AllocationProvisionUser).unwrap_err();
        assert_eq!(e.code, Code::PolicyDenied);
        // A type that the mode forbids is not widened by naming it.
        let wide = read("mode: whole_node\ntypes: [vm.launch]");
        assert_eq!(wide.allows(TaskType::VmLaunch).unwrap_err().code, Code::WrongMode);
    }

    #[test]
    fn a_policy_that_others_may_write_or_that_has_unknown_keys_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.yaml");
        std::fs::write(&path, "mode: slice\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(
            Policy::load(&path)
                .unwrap_err()
                .to_string()
                .contains("nobody else")
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Policy::load(&path).unwrap().mode, Some(NodeMode::Slice));
        std::fs::write(&path, "mode: slice\nallow_all: true\n").unwrap();
        assert!(Policy::load(&path).is_err());
    }
}
