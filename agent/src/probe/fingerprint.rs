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
//!
//! What is read depends on the moment: a network device appears with its driver. So one look makes no other machine of
//! this one; whoever compares looks again.

use std::collections::{BTreeMap, BTreeSet};
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

/// What makers give to many machines instead of a number of their own. It is part of the registered value, and no proof.
const SHARED: [&str; 16] = [
    "03000200-0400-0500-0006-000700080009",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "chassis serial number",
    "base board serial number",
    "to be filled by o.e.m",
    "default",
    "n/a",
    "not available",
    "empty",
    "123456789",
    "1234567890",
    "012345678",
    "0123456789abcdef",
    "01234567890123456789",
    "01234567890123456789ab",
];

/// The fingerprint and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hex SHA-256 over all sources, as registered.
    pub value: String,
    /// Source name → first 16 hex characters of the SHA-256 of its value: enough to compare, nothing to leak.
    pub sources: BTreeMap<String, String>,
}

/// Different values of firmware's own that are proof of a machine: many makers give all their boards one of them.
const PROOF: usize = 2;
/// Of so many sources each selection is tried.
const MOST: usize = 14;

/// Reads the sources; none if the machine offers not a single one.
#[must_use]
pub fn read(roots: &Roots) -> Option<Fingerprint> {
    sources(roots).map(|all| fingerprint(&all))
}

/// What tells this machine from the one that was `registered`, as far as this look shows
/// (`Fingerprint::changes_since`); none where it shows nothing that could be compared. Where the registered sources are
/// lost, it is this machine if some of those here give the registered value: a card may have come since, or its driver have
/// been late then.
#[must_use]
pub fn changes(roots: &Roots, registered: &Fingerprint) -> Option<Vec<String>> {
    let here = sources(roots)?;
    if registered.sources.is_empty() {
        let same = fingerprint(&here).value == registered.value || gives(&here, &registered.value);
        return Some((!same).then(|| "fingerprint".to_owned()).into_iter().collect());
    }
    let here = fingerprint(&here);
    here.is_comparable(registered)
        .then(|| here.changes_since(registered))
}

/// Name → value.
type Sources = BTreeMap<String, String>;

fn sources(roots: &Roots) -> Option<Sources> {
    let mut sources = Sources::new();
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
    Some(sources)
}

/// What is kept of a value.
fn short(value: &str) -> String {
    hex::encode(Sha256::digest(value)).chars().take(16).collect()
}

fn fingerprint(sources: &Sources) -> Fingerprint {
    let all = items(sources).iter().fold(begun(), |hash, item| with(hash, item));
    Fingerprint {
        value: hex::encode(all.finalize()),
        sources: sources
            .iter()
            .map(|(name, value)| (name.clone(), short(value)))
            .collect(),
    }
}

fn items(sources: &Sources) -> Vec<String> {
    sources
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn begun() -> Sha256 {
    let mut hash = Sha256::new();
    hash.update(b"hpc-hardware-v1");
    hash
}

fn with(mut hash: Sha256, item: &str) -> Sha256 {
    hash.update(u32::try_from(item.len()).unwrap_or(u32::MAX).to_be_bytes());
    hash.update(item);
    hash
}

/// Whether some of these sources give `value`.
fn gives(sources: &Sources, value: &str) -> bool {
    let items = items(sources);
    items.len() <= MOST && some_give(&begun(), &items, value)
}

fn some_give(so_far: &Sha256, items: &[String], value: &str) -> bool {
    let Some((first, rest)) = items.split_first() else {
        return hex::encode(so_far.clone().finalize()) == value;
    };
    some_give(&with(so_far.clone(), first), rest, value) || some_give(so_far, rest, value)
}

impl Fingerprint {
    /// Whether both sides have something of one kind.
    fn is_comparable(&self, registered: &Self) -> bool {
        let mut own = registered.sources.keys().filter(|n| !is_mac(n));
        let has_mac = |f: &Self| f.sources.keys().any(|n| is_mac(n));
        own.any(|n| self.sources.contains_key(n)) || (has_mac(self) && has_mac(registered))
    }

    /// Names of DMI sources that both sides could read and that differ, or `mac` when no network device is left that
    /// was there before and no two DMI values say that it is the same machine. Replaced cards are service; another board
    /// is another machine.
    fn changes_since(&self, registered: &Self) -> Vec<String> {
        let both = registered
            .sources
            .iter()
            .filter(|(name, _)| !is_mac(name))
            .filter_map(|(name, digest)| Some((name, digest, self.sources.get(name)? == digest)));
        let mut changed = Vec::new();
        let mut proof = BTreeSet::new();
        for (name, digest, same) in both {
            if !same {
                changed.push(name.clone());
            } else if !SHARED.iter().any(|v| short(v) == *digest) {
                proof.insert(digest);
            }
        }
        if changed.is_empty() && proof.len() >= PROOF {
            return changed;
        }
        let macs = |f: &Self| {
            f.sources
                .keys()
                .filter(|n| is_mac(n))
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

fn is_mac(source: &str) -> bool {
    source.starts_with("mac.")
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
pub(crate) mod tests {
    use std::fs;

    use super::*;

    fn machine(dir: &Path, mac: &str, uuid: Option<&str>) -> Roots {
        let roots = Roots::below(dir);
        card(&roots, "eth0", mac);
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

    /// What a look finds that can compare something.
    fn differs(roots: &Roots, registered: &Fingerprint) -> Vec<String> {
        changes(roots, registered).unwrap()
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
        assert_eq!(differs(&Roots::below(b.path()), &value_alone), ["fingerprint"]);
        assert!(differs(&Roots::below(a.path()), &value_alone).is_empty());
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

    /// Plugs a network card in.
    pub(crate) fn card(roots: &Roots, name: &str, mac: &str) {
        let card = roots.sys.join("class/net").join(name);
        fs::create_dir_all(card.join("device")).unwrap();
        fs::write(card.join("addr_assign_type"), "0\n").unwrap();
        fs::write(card.join("address"), mac).unwrap();
    }

    /// Takes it out.
    pub(crate) fn without(roots: &Roots, name: &str) {
        fs::remove_dir_all(roots.sys.join("class/net").join(name)).unwrap();
    }

    #[test]
    fn a_card_that_is_missing_or_has_come_makes_no_other_machine_also_where_the_sources_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), "02:00:00:00:00:01\n", Some("AAAA-1\n"));
        let lost = |known: &Fingerprint| Fingerprint {
            value: known.value.clone(),
            sources: BTreeMap::new(),
        };
        let one = read(&roots).unwrap();
        card(&roots, "ib0", "02:00:00:00:00:02\n");
        let two = read(&roots).unwrap();
        assert_ne!(one.value, two.value);
        // It was not there yet when the node was registered.
        assert!(differs(&roots, &one).is_empty() && differs(&roots, &lost(&one)).is_empty());
        // Only it is there at this start: nothing can be told where the sources are lost, until the other one has come.
        without(&roots, "eth0");
        assert!(differs(&roots, &two).is_empty());
        assert_eq!(differs(&roots, &one), ["mac"]);
        assert_eq!(differs(&roots, &lost(&two)), ["fingerprint"]);
        card(&roots, "eth0", "02:00:00:00:00:01\n");
        assert!(differs(&roots, &lost(&two)).is_empty());
        // Another machine has none of them.
        let other = tempfile::tempdir().unwrap();
        let other = read(&machine(other.path(), "02:00:00:00:00:03\n", Some("AAAA-2\n"))).unwrap();
        assert_eq!(differs(&roots, &lost(&other)), ["fingerprint"]);
        // More than are tried: the value alone counts.
        for n in 3..=MOST {
            card(&roots, &format!("eth{n}"), &format!("02:00:00:00:01:{n:02x}\n"));
        }
        let all = read(&roots).unwrap();
        assert_eq!(all.sources.len(), MOST + 1);
        assert_eq!(differs(&roots, &lost(&one)), ["fingerprint"]);
        assert!(differs(&roots, &lost(&all)).is_empty());
    }

    #[test]
    fn where_two_of_firmwares_own_agree_all_cards_may_be_others_and_elsewhere_one_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let uuid = "03000200-0400-0500-0006-000700080009\n";
        let roots = machine(dir.path(), "02:00:00:00:00:01\n", Some(uuid));
        let says = |name: &str, value: &str| {
            fs::write(roots.sys.join("class/dmi/id").join(name), value).unwrap();
        };
        // Of a machine that is registered as it is now, and then gets another card.
        let moved = |mac: &str| {
            let registered = read(&roots).unwrap();
            fs::write(roots.sys.join("class/net/eth0/address"), mac).unwrap();
            (differs(&roots, &registered), registered)
        };
        assert_eq!(moved("02:00:00:00:00:02\n").0, ["mac"], "all boards have that");
        says("product_serial", "S-1\n");
        assert_eq!(moved("02:00:00:00:00:03\n").0, ["mac"], "one may be all boards'");
        says("board_serial", "S-1\n");
        assert_eq!(moved("02:00:00:00:00:04\n").0, ["mac"], "the same value again");
        says("chassis_serial", "Chassis Serial Number\n");
        assert_eq!(moved("02:00:00:00:00:05\n").0, ["mac"], "all chassis have that");
        says("chassis_serial", "C-1\n");
        let (found, registered) = moved("02:00:00:00:00:06\n");
        assert!(found.is_empty(), "{found:?}");
        says("product_serial", "S-2\n");
        assert_eq!(differs(&roots, &registered), ["dmi.product_serial", "mac"]);

        let (_dir, roots) = crate::probe::recorded("gpu-node");
        let registered = read(&roots).unwrap();
        let macs = |f: &Fingerprint| f.sources.keys().filter(|n| n.starts_with("mac.")).count();
        assert_eq!(macs(&registered), 1, "{:?}", registered.sources);
        without(&roots, "ens1f0");
        assert!(
            differs(&roots, &registered).is_empty(),
            "its card has not appeared yet"
        );
        card(&roots, "ens9", "02:00:00:00:00:09\n");
        assert_eq!(differs(&roots, &registered), ["mac"]);
        card(&roots, "ens1f0", "b8:3f:d2:00:07:01\n");
        assert!(differs(&roots, &registered).is_empty(), "until it has");
    }

    #[test]
    fn a_look_that_can_compare_nothing_finds_nothing_out() {
        let dir = tempfile::tempdir().unwrap();
        let roots = machine(dir.path(), "02:00:00:00:00:01\n", None);
        let registered = read(&roots).unwrap();
        without(&roots, "eth0");
        assert_eq!(changes(&roots, &registered), None, "the machine id alone");
        let by_id = read(&roots).unwrap();
        assert_eq!(changes(&roots, &by_id), Some(Vec::new()));
        fs::remove_dir_all(&roots.etc).unwrap();
        assert_eq!(changes(&roots, &registered), None, "no source at all");
        card(&roots, "eth1", "02:00:00:00:00:02\n");
        assert_eq!(changes(&roots, &by_id), None, "of another kind");
        assert_eq!(changes(&roots, &registered), Some(vec!["mac".to_owned()]));
        let value_alone = Fingerprint {
            sources: BTreeMap::new(),
            ..registered
        };
        assert_eq!(
            changes(&roots, &value_alone),
            Some(vec!["fingerprint".to_owned()])
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
