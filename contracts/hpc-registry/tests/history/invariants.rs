//! What must hold in storage after every message, whatever came before.

use hpc_schema::cluster::Aggregate;
use hpc_schema::node::{HotRecord, NodeState};
use hpc_schema::registry::AggregateView;
use hpc_schema::report::{Section, section_digest};

use crate::common::recount::{by_name, recount};
use crate::common::stored::{Map, Slot, Stored, hex};

pub(crate) fn check(map: &Map) -> Stored {
    let all = Stored::read(map);
    clusters(&all);
    for (at, slot) in &all.slots {
        slots(&all, *at, slot);
    }
    tables(&all);
    sums(&all);
    all
}

/// Hot record, cold record and number of a cluster stand and fall together.
fn clusters(all: &Stored) {
    let names: Vec<_> = all.clusters.values().map(|c| &c.id).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(sorted, all.infos.keys().collect::<Vec<_>>());
    assert_eq!(
        all.ids.iter().collect::<Vec<_>>(),
        all.clusters.iter().map(|(i, c)| (i, &c.id)).collect::<Vec<_>>()
    );
    assert!(all.ids.keys().all(|index| *index < all.count));
    assert!(
        all.gpu_types
            .keys()
            .chain(all.cursors.keys())
            .all(|i| all.ids.contains_key(i))
    );
    for (index, cluster) in &all.clusters {
        let pages = cluster.slots.div_ceil(64) as u16;
        let heads = all.heads.iter().filter(|(i, _)| i == index).count();
        assert_eq!(heads, usize::from(pages), "every page has its head");
        assert!(all.cursors.get(index).is_none_or(|at| *at < pages));
    }
}

/// A slot holds a node with all that belongs to it, or nothing.
fn slots(all: &Stored, (index, place): (u32, (u16, u8)), slot: &Slot) {
    let set = |bytes: &[u8]| bytes.iter().any(|b| *b != 0);
    let Some(record) = &slot.record else {
        assert!(
            !set(&slot.key) && !set(&slot.section_entry),
            "{index} {place:?}: {slot:?}"
        );
        assert!(slot.id.is_none() && slot.identity.is_none() && slot.section.is_none());
        assert!(!slot.previous && !slot.drain);
        let used = all
            .clusters
            .get(&index)
            .is_some_and(|c| u32::from(place.0) * 64 + u32::from(place.1) < c.slots);
        // What a closed cluster leaves is not read again.
        if all.clusters.contains_key(&index) {
            assert_eq!(
                slot.free, used,
                "{index} {place:?}: an unused slot is free for a node"
            );
        }
        return;
    };
    let cluster = &all.clusters[&index];
    assert!(u32::from(place.0) * 64 + u32::from(place.1) < cluster.slots);
    assert!(!slot.free && slot.key.len() == 48);
    let id = slot.id.clone().expect("a node has an id");
    assert_eq!(
        all.places.get(&(id, index)),
        Some(&place),
        "slot and identity, one to one"
    );
    let identity = slot.identity.as_ref().expect("a node has an identity");
    let epoch = identity["epoch"].as_u64().unwrap();
    assert!((1..=all.epoch).contains(&epoch));
    if let Some(fp) = identity.get("hardware_fingerprint").and_then(|v| v.as_str())
        && record.state != NodeState::Deregistered
    {
        let holder = all.fingerprints.iter().find(|(bytes, _)| hex(bytes) == fp);
        assert_eq!(
            holder.map(|(_, at)| *at),
            Some((index, place)),
            "one machine, one live node"
        );
    }
    assert_eq!(
        slot.drain, record.drain,
        "an order is on record while a drain is in force"
    );
    assert_eq!(
        record.state == NodeState::Deregistered,
        all.due.contains(&(record.since, index, place)) && record.deregistered_at().is_some(),
        "prune finds every deregistered node"
    );
    match &slot.section {
        None => assert!(!set(&slot.section_entry)),
        Some(bytes) => {
            let section = Section::decode(bytes).unwrap();
            // Where the cluster lets fewer job ids stand than were signed, the digest is that of what was signed.
            if section.jobs.len() == usize::from(section.jobs_total)
                && section.jobs.iter().all(|j| j.contains('-'))
            {
                assert_eq!(section_digest(bytes)[..], slot.section_entry[..16]);
            }
            let types = all.gpu_types.get(&index).cloned().unwrap_or_default();
            match slot.section_entry[16] {
                0 => assert!(section.gpu_type.is_empty() || types.len() == 255),
                n => assert_eq!(types[usize::from(n) - 1], section.gpu_type),
            }
        }
    }
    if record.state == NodeState::Pending && record.last_heartbeat == 0 {
        assert_eq!((record.sequence, record.status), (0, None));
    }
}

/// Indices name only what is there.
fn tables(all: &Stored) {
    let nodes = all.slots.values().filter(|s| s.record.is_some()).count();
    assert_eq!(all.places.len(), nodes);
    let with_id = all.slots.values().filter(|s| s.id.is_some()).count();
    assert_eq!(with_id, nodes);
    for (fp, at) in &all.fingerprints {
        let identity = all.slots[at].identity.as_ref().expect("a holder is on record");
        assert_eq!(identity["hardware_fingerprint"].as_str(), Some(hex(fp).as_str()));
    }
    for (index, count) in &all.anchor_counts {
        let listed = all.anchors.keys().filter(|(i, _)| i == index).count();
        assert_eq!(listed as u64, *count);
    }
    assert_eq!(all.anchors.len(), all.anchor_numbers.len());
    for ((index, _), number) in &all.anchor_numbers {
        assert!(all.anchors.contains_key(&(*index, *number)));
    }
}

/// Each cluster's sums equal those of its records, counted anew.
fn sums(all: &Stored) {
    for (index, cluster) in &all.clusters {
        let stored = Aggregate::decode(&cluster.sums).unwrap();
        let names = all.gpu_types.get(index).cloned().unwrap_or_default();
        for active in [false, true] {
            assert_eq!(
                by_name(stored.view(active, &names)),
                of_records(all, *index, active, |record| record)
            );
        }
    }
}

/// Sums over a cluster's records as `seen` shows them.
pub(crate) fn of_records(
    all: &Stored,
    index: u32,
    active: bool,
    seen: impl Fn(HotRecord) -> HotRecord,
) -> AggregateView {
    let nodes: Vec<_> = all
        .slots
        .iter()
        .filter(|((i, _), _)| *i == index)
        .filter_map(|(_, slot)| {
            let section = slot.section.as_ref().map(|b| Section::decode(b).unwrap());
            let gpu_type = section.map(|s| s.gpu_type).filter(|t| !t.is_empty());
            Some((seen(slot.record?), gpu_type))
        })
        .collect();
    recount(active, &nodes)
}
