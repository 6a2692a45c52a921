//! The hardware fingerprint: hex SHA-256 over what identifies this machine and nothing that changes in service.
//!
//! Sources, each `name=value` with its length before it, sorted: `dmi.product_uuid`, `dmi.product_serial`,
//! `dmi.board_serial`, `dmi.chassis_serial`, and `mac.<address>` of each physical network device (its permanent
//! address, also under a bond; of InfiniBand the port GUID). `machine-id` counts only where none of these can be
//! read: one image booted on many nodes has the same one. Disks are left out, so that a resize or a replacement
//! changes nothing.
//!
//! DMI serials are readable by root only. So each source is kept with its own digest, and a later look compares the
//! sources that both could read.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Roots, line, names_in};

/// What firmware says when its maker wrote nothing.
const PLACEHOLDERS: [&str; 10] = [
    "none",
    "unknown",
    "default string",
    "to be filled by o.e.m.",
    "not specified",
    "not applicable",
    "system serial number",
    "0",
    "0123456789",
    "00000000-0000-0000-0000-000000000000",
];

/// The fingerprint and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hex SHA-256 over all sources, as registered.
    pub value: String,
    /// Source name → first 16 hex characters of the SHA-256 of its value: enough to compare, nothing to leak.
    pub sources: BTreeMap<String, String>,
}

/// Reads the sources; none if the machine offers not a single one.
#[must_use]
pub fn read(roots: &Roots) -> Option<Fingerprint> {
    let mut sources = BTreeMap::new();
    for name in ["product_uuid", "product_serial", "board_serial", "chassis_serial"] {
        if let Some(value) = meaningful(&roots.sys.join("class/dmi/id").join(name)) {
            sources.insert(format!("dmi.{name}"), value);
        }
    }
    let net = roots.sys.join("class/net");
    for address in names_in(&net)
        .iter()
        .filter_map(|n| permanent_address(&net.join(n)))
    {
        sources.insert(format!("mac.{address}"), address);
    }
    if sources.is_empty() {
        sources.insert(
            "machine-id".to_owned(),
            meaningful(&roots.etc.join("machine-id"))?,
        );
    }
    let mut all = Sha256::new();
    all.update(b"hpc-hardware-v1");
    for (name, value) in &sources {
        let item = format!("{name}={value}");
        all.update(u32::try_from(item.len()).unwrap_or(u32::MAX).to_be_bytes());
        all.update(item);
    }
    let sources = sources
        .into_iter()
        .map(|(name, value)| {
            (
                name,
                hex::encode(Sha256::digest(value)).chars().take(16).collect(),
            )
        })
        .collect();
    Some(Fingerprint {
        value: hex::encode(all.finalize()),
        sources,
    })
}

impl Fingerprint {
    /// Names of DMI sources that both sides could read and that differ, or `mac` when no network device is left that
    /// was there before. Replaced cards are service; another board is another machine. Of a registration whose sources
    /// are lost the whole value counts.
    #[must_use]
    pub fn changes_since(&self, registered: &Self) -> Vec<String> {
        if registered.sources.is_empty() {
            let changed = registered.value != self.value;
            return changed.then(|| "fingerprint".to_owned()).into_iter().collect();
        }
        let mut changed: Vec<String> = registered
            .sources
            .iter()
            .filter(|(name, _)| !name.starts_with("mac."))
            .filter(|(name, digest)| self.sources.get(*name).is_some_and(|d| d != *digest))
            .map(|(name, _)| name.clone())
            .collect();
        let macs = |f: &Self| {
            f.sources
                .keys()
                .filter(|n| n.starts_with("mac."))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (now, before) = (macs(self), macs(registered));
        if !now.is_empty() && !before.is_empty() && !now.iter().any(|m| before.contains(m)) {
            changed.push("mac".to_owned());
        }
        changed
    }
}

fn meaningful(path: &Path) -> Option<String> {
    let value = line(path)?.to_lowercase();
    (!PLACEHOLDERS.contains(&value.as_str())).then_some(value)
}

fn permanent_address(device: &Path) -> Option<String> {
    if !device.join("device").exists() {
        return None;
    }
    // A bond gives all its slaves one address and keeps theirs here.
    if let Some(address) = line(&device.join("bonding_slave/perm_hwaddr")) {
        return normal(&address);
    }
    // 0: the address is the hardware's own. Random (1), stolen (2) and set (3) ones change.
    if line(&device.join("addr_assign_type"))? != "0" {
        return None;
    }
    normal(&line(&device.join("address"))?)
}

fn normal(address: &str) -> Option<String> {
    let parts: Vec<&str> = address.split(':').collect();
    // InfiniBand: 20 bytes, of which the first 12 (queue pair, subnet prefix) change.
    let parts = if parts.len() == 20 {
        parts.get(12..)?
    } else {
        &parts
    };
    let address = parts.join(":").to_lowercase();
    (parts.len() >= 6 && !address.chars().all(|c| c == '0' || c == ':')).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(dir: &Path, mac: &str, uuid: Option<&str>) -> Roots {
        let roots = Roots::below(dir);
        let eth = roots.sys.join("class/net/eth0");
        fs::create_dir_all(eth.join("device")).unwrap();
        fs::write(eth.join("addr_assign_type"), "0\n").unwrap();
        fs::write(eth.join("address"), mac).unwrap();
        fs::create_dir_all(roots.sys.join("class/net/br0")).unwrap();
        fs::create_dir_all(&roots.etc).unwrap();
        fs::write(roots.etc.join("machine-id"), "3d1219c7c4c5404aaa1f6d2a48adfda4\n").unwrap();
        if let Some(uuid) = uuid {
            fs::create_dir_all(roots.sys.join("class/dmi/id")).unwrap();
            fs::write(roots.sys.join("class/dmi/id/product_uuid"), uuid).unwrap();
            fs::write(
                roots.sys.join("class/dmi/id/board_serial"),
                "To be filled by O.E.M.\n",
            )
            .unwrap();
        }
        roots
    }

    #[test]
    fn machines_of_one_image_differ_and_the_same_machine_does_not() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = read(&machine(a.path(), "02:00:00:00:00:01\n", None)).unwrap();
        let two = read(&machine(b.path(), "02:00:00:00:00:02\n", None)).unwrap();
        assert_ne!(one.value, two.value);
        assert_eq!(one.value.len(), 64);
        assert_eq!(one, read(&Roots::below(a.path())).unwrap());
        assert!(!one.sources.contains_key("machine-id"));
        assert_eq!(two.changes_since(&one), ["mac"]);
        // After the loss of a disk only the value is known.
        let value_alone = Fingerprint {
            value: one.value.clone(),
            sources: BTreeMap::new(),
        };
        assert_eq!(two.changes_since(&value_alone), ["fingerprint"]);
        assert!(one.changes_since(&value_alone).is_empty());
    }

    #[test]
    fn placeholders_do_not_count_and_another_board_is_a_change() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = read(&machine(a.path(), "02:00:00:00:00:01\n", Some("AAAA-1\n"))).unwrap();
        assert_eq!(
            one.sources.keys().collect::<Vec<_>>(),
            ["dmi.product_uuid", "mac.02:00:00:00:00:01"]
        );
        let other = read(&machine(b.path(), "02:00:00:00:00:01\n", Some("aaaa-2\n"))).unwrap();
        assert_eq!(other.changes_since(&one), ["dmi.product_uuid"]);
        // The agent's user cannot read the uuid that root registered: that is no change.
        fs::remove_dir_all(b.path().join("sys/class/dmi")).unwrap();
        assert!(
            read(&Roots::below(b.path()))
                .unwrap()
                .changes_since(&one)
                .is_empty()
        );
    }

    #[test]
    fn a_disk_that_is_resized_replaced_or_added_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), "02:00:00:00:00:01\n", Some("AAAA-1\n"));
        let disk = |name: &str, sectors: &str, serial: &str| {
            let folder = roots.sys.join("block").join(name);
            fs::create_dir_all(folder.join("device")).unwrap();
            fs::write(folder.join("size"), sectors).unwrap();
            fs::write(folder.join("device/serial"), serial).unwrap();
        };
        disk("vda", "2097152\n", "one\n");
        let before = read(&roots);
        disk("vda", "4194304\n", "one\n");
        assert_eq!(read(&roots), before, "resized");
        disk("vda", "4194304\n", "two\n");
        disk("nvme0n1", "8388608\n", "three\n");
        assert_eq!(read(&roots), before, "replaced, another added");
    }

    #[test]
    fn the_machine_id_counts_only_where_nothing_else_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), "02:00:00:00:00:01\n", None);
        fs::write(roots.sys.join("class/net/eth0/addr_assign_type"), "1\n").unwrap();
        assert_eq!(
            read(&roots).unwrap().sources.keys().collect::<Vec<_>>(),
            ["machine-id"]
        );
        fs::remove_dir_all(&roots.etc).unwrap();
        assert_eq!(read(&roots), None);
    }

    #[test]
    fn bonded_and_infiniband_devices_give_their_own_address() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), "02:00:00:00:00:09\n", None);
        let eth = roots.sys.join("class/net/eth0");
        fs::create_dir_all(eth.join("bonding_slave")).unwrap();
        fs::write(eth.join("bonding_slave/perm_hwaddr"), "b8:59:9f:00:00:01\n").unwrap();
        let ib = roots.sys.join("class/net/ib0");
        fs::create_dir_all(ib.join("device")).unwrap();
        fs::write(ib.join("addr_assign_type"), "0\n").unwrap();
        fs::write(
            ib.join("address"),
            "00:00:10:87:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:aa:bb:cc\n",
        )
        .unwrap();
        let names: Vec<String> = read(&roots).unwrap().sources.into_keys().collect();
        assert_eq!(names, ["mac.b8:59:9f:00:00:01", "mac.b8:59:9f:03:00:aa:bb:cc"]);
    }
}
