//! The network of slices: Open vSwitch, address translation, forwarding, interfaces over InfiniBand.

use hpc_schema::task::SliceNetwork;

use super::Tree;
use crate::probe::{line, names_in};

/// ARPHRD_INFINIBAND of the kernel's `if_arp.h`.
const INFINIBAND: &str = "32";
const NETPLAN: u64 = 1 << 20;

pub(super) fn read(tree: &Tree<'_>) -> SliceNetwork {
    let roots = tree.roots;
    let net = roots.sys.join("class/net");
    let interfaces: Vec<String> = names_in(&net)
        .into_iter()
        .filter(|n| line(&net.join(n).join("type")).as_deref() == Some(INFINIBAND))
        .collect();
    let netplan = roots.etc.join("netplan");
    let files = names_in(&netplan)
        .into_iter()
        .filter(|n| n.ends_with(".yaml"))
        .filter(|n| {
            let text = crate::files::read_text(&netplan.join(n), NETPLAN).unwrap_or_default();
            interfaces.iter().any(|i| names(&text, i))
        })
        .map(|n| format!("/etc/netplan/{n}"))
        .collect();
    SliceNetwork {
        ovs_bridges: (tree.ask)("ovs-vsctl", &["--timeout=5", "list-br"])
            .map(|t| t.lines().map(str::to_owned).filter(|l| !l.is_empty()).collect()),
        nat: nat(tree),
        ip_forwarding: line(&roots.proc.join("sys/net/ipv4/ip_forward")).as_deref() == Some("1"),
        ipoib_netplan: files,
        ipoib_interfaces: interfaces,
    }
}

/// Whether a rule masquerades; none if neither of the kernel's two tongues can be spoken.
fn nat(tree: &Tree<'_>) -> Option<bool> {
    let nft = (tree.ask)("nft", &["list", "ruleset"]);
    let legacy = (tree.ask)("iptables-save", &["-t", "nat"]);
    let says = |text: &Option<String>| {
        text.as_ref()
            .map(|t| t.to_ascii_lowercase().contains("masquerade"))
    };
    match (says(&nft), says(&legacy)) {
        (None, None) => None,
        (a, b) => Some(a == Some(true) || b == Some(true)),
    }
}

/// Whether a netplan file has a section of this interface.
fn names(text: &str, interface: &str) -> bool {
    text.lines().any(|l| {
        let key = l.trim().trim_matches(|c| matches!(c, '"' | '\''));
        key.strip_suffix(':')
            .is_some_and(|k| k.trim_matches(|c| matches!(c, '"' | '\'')) == interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_by_its_section_alone() {
        let text =
            "network:\n  ethernets:\n    ibp1s0:\n      dhcp4: no\n    \"ib1\":\n      mtu: 2044 # ib2:x\n";
        assert!(names(text, "ibp1s0") && names(text, "ib1") && !names(text, "ib2") && !names(text, "ib"));
    }
}
