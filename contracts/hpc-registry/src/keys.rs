//! Every raw storage key, in one table. All integers big endian; an index is a cluster's number.
//!
//! | first byte | key | value |
//! |---|---|---|
//! | 01 | cluster id | hot cluster record, `cluster::hot` |
//! | 02 | index u32 ‖ page u16 ‖ 00 | 01: head of a page |
//! | 02 | index ‖ page ‖ 01 / 02 / 03 | key page / section page / hot page, `node::page` |
//! | 03 | index ‖ page | statistics page |
//! | 04 | index ‖ page ‖ slot u8 | node id, text |
//! | 05 | index ‖ page ‖ slot | second section as signed |
//! | 06 | index ‖ page ‖ slot | agent key 32 ‖ tag 16 of the registration before |
//! | 07 | index ‖ page ‖ slot | provider's drain, JSON |
//! | 08 | index ‖ page ‖ slot | 01: the slot is free for a new node |
//! | 09 | fingerprint 32 | index ‖ page ‖ slot of its holder |
//! | 0a | index ‖ registration nonce 32 | expiry u32 |
//! | 0c | | parameters, `config::params` |
//! | 0d | | last registration epoch u64 |
//! | 0e | | number of clusters u32 |
//! | 0f | (nothing) or index | sweep cursor: index u32 ‖ page u16, or page u16 |
//! | 10 | index | cluster id, text |
//! | 11 | index | GPU types, `cluster::gpu_types` |
//! | 12 | node id ‖ 00 ‖ index | page u16 ‖ slot u8 |
//! | 13 | index ‖ page ‖ slot | identity, JSON |
//! | 14 | deregistered at u32 ‖ index ‖ page ‖ slot | 01: due for `prune` after retention |
//! | 15 | index ‖ kind length u8 ‖ kind ‖ digest 32 | number u64 in the list of anchors |
//! | 16 | index ‖ number u64 | anchor, JSON |
//! | 17 | index | number of anchors u64 |
//! | 18 | | prune cursor over nonces: index ‖ nonce 32 |
//!
//! Beside these stand the cw2 item `contract_info` and the `cw-storage-plus` items `config` and `cluster`; their
//! keys begin with 00 or a letter.

use hpc_schema::id::{ClusterId, NodeId};

pub(crate) const PARAMS: &[u8] = &[0x0c];
pub(crate) const EPOCH: &[u8] = &[0x0d];
pub(crate) const CLUSTER_COUNT: &[u8] = &[0x0e];
pub(crate) const SWEEP_CURSOR: &[u8] = &[0x0f];
pub(crate) const NONCE_CURSOR: &[u8] = &[0x18];

/// Where a node's slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) cluster: u32,
    pub(crate) page: u16,
    pub(crate) slot: u8,
}

impl Place {
    pub(crate) fn to_bytes(self) -> [u8; 7] {
        let [a, b, c, d] = self.cluster.to_be_bytes();
        let [e, f] = self.page.to_be_bytes();
        [a, b, c, d, e, f, self.slot]
    }

    pub(crate) fn from_bytes([a, b, c, d, e, f, slot]: [u8; 7]) -> Self {
        Self {
            cluster: u32::from_be_bytes([a, b, c, d]),
            page: u16::from_be_bytes([e, f]),
            slot,
        }
    }

    fn key(self, prefix: u8) -> Vec<u8> {
        join(prefix, &[&self.to_bytes()])
    }

    pub(crate) fn node_id(self) -> Vec<u8> {
        self.key(0x04)
    }

    pub(crate) fn section(self) -> Vec<u8> {
        self.key(0x05)
    }

    pub(crate) fn previous(self) -> Vec<u8> {
        self.key(0x06)
    }

    pub(crate) fn drain(self) -> Vec<u8> {
        self.key(0x07)
    }

    pub(crate) fn free(self) -> Vec<u8> {
        self.key(0x08)
    }

    pub(crate) fn identity(self) -> Vec<u8> {
        self.key(0x13)
    }

    pub(crate) fn due(self, deregistered_at: u32) -> Vec<u8> {
        join(0x14, &[&deregistered_at.to_be_bytes(), &self.to_bytes()])
    }
}

fn join(prefix: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    key.push(prefix);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

pub(crate) fn cluster_hot(id: &ClusterId) -> Vec<u8> {
    join(0x01, &[id.as_str().as_bytes()])
}

/// What stands under prefix 02; the order is the order of a range scan.
///
/// A scan is charged for its first value twice: once when it begins, once when it moves on. The head is there to
/// be that value, one byte instead of a page of keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Head,
    Keys,
    Sections,
    Hot,
}

impl Kind {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Head => 0,
            Self::Keys => 1,
            Self::Sections => 2,
            Self::Hot => 3,
        }
    }
}

pub(crate) fn page(cluster: u32, page: u16, kind: Kind) -> Vec<u8> {
    join(
        0x02,
        &[&cluster.to_be_bytes(), &page.to_be_bytes(), &[kind.number()]],
    )
}

/// Bounds of a scan over head, key, section and hot page.
pub(crate) fn page_range(cluster: u32, page: u16) -> (Vec<u8>, Vec<u8>) {
    let key = |kind: u8| join(0x02, &[&cluster.to_be_bytes(), &page.to_be_bytes(), &[kind]]);
    (key(Kind::Head.number()), key(Kind::Hot.number() + 1))
}

pub(crate) fn stats(cluster: u32, page: u16) -> Vec<u8> {
    join(0x03, &[&cluster.to_be_bytes(), &page.to_be_bytes()])
}

pub(crate) fn free_range(cluster: u32) -> (Vec<u8>, Vec<u8>) {
    (
        join(0x08, &[&cluster.to_be_bytes()]),
        join(0x08, &[&cluster.to_be_bytes(), &[0xff; 4]]),
    )
}

pub(crate) fn fingerprint(digest: &[u8]) -> Vec<u8> {
    join(0x09, &[digest])
}

/// Each cluster burns its own: a stranger cannot use up another's.
pub(crate) fn nonce(cluster: u32, nonce: &[u8]) -> Vec<u8> {
    join(0x0a, &[&cluster.to_be_bytes(), nonce])
}

pub(crate) fn nonces_from(cursor: &[u8]) -> Vec<u8> {
    join(0x0a, &[cursor])
}

pub(crate) const NONCES_END: &[u8] = &[0x0b];

pub(crate) fn cluster_cursor(cluster: u32) -> Vec<u8> {
    join(0x0f, &[&cluster.to_be_bytes()])
}

pub(crate) fn cluster_id(cluster: u32) -> Vec<u8> {
    join(0x10, &[&cluster.to_be_bytes()])
}

pub(crate) fn gpu_types(cluster: u32) -> Vec<u8> {
    join(0x11, &[&cluster.to_be_bytes()])
}

pub(crate) fn node_place(id: &NodeId, cluster: u32) -> Vec<u8> {
    join(0x12, &[id.as_str().as_bytes(), &[0], &cluster.to_be_bytes()])
}

/// Bounds of a scan over the clusters that have a node of this id; ids hold no 0 byte.
pub(crate) fn node_place_range(id: &NodeId) -> (Vec<u8>, Vec<u8>) {
    (
        join(0x12, &[id.as_str().as_bytes(), &[0]]),
        join(0x12, &[id.as_str().as_bytes(), &[1]]),
    )
}

/// Everything due for `prune` that was deregistered before `before`.
pub(crate) fn due_range(before: u32) -> (Vec<u8>, Vec<u8>) {
    (vec![0x14], join(0x14, &[&before.to_be_bytes()]))
}

pub(crate) fn anchor_number(cluster: u32, kind: &str, digest: &[u8]) -> Vec<u8> {
    // A kind has at most 32 bytes.
    let len = u8::try_from(kind.len()).unwrap_or(u8::MAX);
    join(0x15, &[&cluster.to_be_bytes(), &[len], kind.as_bytes(), digest])
}

pub(crate) fn anchor(cluster: u32, number: u64) -> Vec<u8> {
    join(0x16, &[&cluster.to_be_bytes(), &number.to_be_bytes()])
}

pub(crate) fn anchors_end(cluster: u32) -> Vec<u8> {
    join(0x16, &[&cluster.to_be_bytes(), &[0xff; 9]])
}

pub(crate) fn anchor_count(cluster: u32) -> Vec<u8> {
    join(0x17, &[&cluster.to_be_bytes()])
}
