//! What the host needs for slices, and what of it is missing.

use hpc_schema::task::Prerequisites;

use super::{COMMANDS, Tree, located, network};
use crate::probe::{Roots, line, names_in};

/// Modules that slices use.
const MODULES: [&str; 6] = [
    "kvm",
    "vfio",
    "vfio_pci",
    "vfio_iommu_type1",
    "openvswitch",
    "ib_ipoib",
];
/// Arguments that matter, as specification 003 lists them.
const ARGUMENTS: [&str; 3] = ["intel_iommu=on", "amd_iommu=on", "iommu=pt"];
/// Files of distributions that say that the host wants a reboot.
const REBOOT: [&str; 2] = ["reboot-required", "reboot-needed"];
/// Of `/proc/cpuinfo`: the first processor's flags stand far before this.
const CPUINFO: u64 = 16 << 20;

pub(super) fn prerequisites(tree: &Tree<'_>) -> Prerequisites {
    let roots = tree.roots;
    let command_line = line(&roots.proc.join("cmdline")).unwrap_or_default();
    let arguments: Vec<&str> = command_line.split_whitespace().collect();
    Prerequisites {
        kvm_available: roots.dev.join("kvm").exists(),
        iommu_group_count: u32::try_from(names_in(&roots.sys.join("kernel/iommu_groups")).len())
            .unwrap_or(u32::MAX),
        iommu_kernel_args: ARGUMENTS
            .iter()
            .filter(|a| arguments.contains(*a))
            .map(|a| (*a).to_owned())
            .collect(),
        cpu_virtualization: flags(roots),
        // One that is built in has a folder too.
        loaded_modules: MODULES
            .iter()
            .map(|m| ((*m).to_owned(), roots.sys.join("module").join(m).is_dir()))
            .collect(),
        required_commands: located(tree, &COMMANDS),
        slice_network: network::read(tree),
        reboot_required: REBOOT
            .iter()
            .map(|name| tree.run.join(name))
            .filter(|path| path.exists())
            .map(|path| path.display().to_string())
            .collect(),
    }
}

fn flags(roots: &Roots) -> Vec<String> {
    let text = crate::files::read_text(&roots.proc.join("cpuinfo"), CPUINFO).unwrap_or_default();
    let flags = text
        .lines()
        .find_map(|l| l.strip_prefix("flags"))
        .and_then(|l| l.split_once(':'))
        .map_or("", |(_, f)| f);
    ["vmx", "svm"]
        .into_iter()
        .filter(|f| flags.split_whitespace().any(|w| w == *f))
        .map(str::to_owned)
        .collect()
}

/// What names this host among others: addresses drawn from it are of no other.
pub(super) fn identity(roots: &Roots) -> String {
    line(&roots.etc.join("machine-id"))
        .or_else(|| line(&roots.proc.join("sys/kernel/hostname")))
        .unwrap_or_default()
}

/// Each thing that is missing, with what to do about it.
pub(super) fn blockers(p: &Prerequisites) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |missing: bool, text: &str| {
        if missing {
            all.push(text.to_owned());
        }
    };
    say(
        p.cpu_virtualization.is_empty(),
        "the processors show neither vmx nor svm; turn virtualization on in the firmware",
    );
    say(!p.kvm_available, "/dev/kvm is missing; load kvm_intel or kvm_amd");
    let asked = p.iommu_kernel_args.iter().any(|a| a.ends_with("_iommu=on"));
    say(
        p.iommu_group_count == 0 && !asked,
        "there are no IOMMU groups; boot with intel_iommu=on iommu=pt (AMD: amd_iommu=on iommu=pt)",
    );
    say(
        p.iommu_group_count == 0 && asked,
        "there are no IOMMU groups though the kernel was asked for them; turn VT-d or AMD-Vi on in the firmware",
    );
    for module in ["vfio_pci", "vfio_iommu_type1"] {
        let loaded = p.loaded_modules.get(module).copied().unwrap_or(false);
        say(!loaded, &format!("{module} is not loaded; modprobe {module}"));
    }
    for (command, path) in &p.required_commands {
        say(path.is_none(), &format!("{command} is not installed"));
    }
    let n = &p.slice_network;
    say(
        n.ovs_bridges.as_ref().is_none_or(Vec::is_empty),
        "there is no Open vSwitch bridge; ovs-vsctl add-br",
    );
    say(
        !n.ip_forwarding,
        "IPv4 is not forwarded; sysctl net.ipv4.ip_forward=1",
    );
    say(n.nat != Some(true), "no rule masquerades the slices' addresses");
    say(
        !n.ipoib_interfaces.is_empty() && n.ipoib_netplan.is_empty(),
        "interfaces over InfiniBand are in no netplan file: they will not come back after a reboot",
    );
    say(!p.reboot_required.is_empty(), "the host wants a reboot");
    all
}
