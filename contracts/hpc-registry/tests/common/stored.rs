//! The raw store read back by the tables of `docs/contract.md`, independently of the contract's own readers.

use std::collections::{BTreeMap, BTreeSet};

use hpc_schema::node::HotRecord;

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// Page and slot.
pub type Place = (u16, u8);

#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub id: String,
    pub active: bool,
    pub slots: u32,
    pub sums: Vec<u8>,
}

/// What is stored of one slot.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    pub record: Option<HotRecord>,
    pub key: Vec<u8>,
    /// Section digest ‖ GPU type.
    pub section_entry: Vec<u8>,
    pub id: Option<String>,
    pub section: Option<Vec<u8>>,
    pub previous: bool,
    pub drain: bool,
    pub free: bool,
    pub identity: Option<serde_json::Value>,
}

#[derive(Debug, Default)]
pub struct Stored {
    pub clusters: BTreeMap<u32, Cluster>,
    /// By cluster's number and place.
    pub slots: BTreeMap<(u32, Place), Slot>,
    /// Names by cluster's number.
    pub ids: BTreeMap<u32, String>,
    /// What rarely changes, by id.
    pub infos: BTreeMap<String, serde_json::Value>,
    pub count: u32,
    pub epoch: u64,
    /// Node id and cluster's number to its place.
    pub places: BTreeMap<(String, u32), Place>,
    pub fingerprints: BTreeMap<Vec<u8>, (u32, Place)>,
    pub due: BTreeSet<(u32, u32, Place)>,
    pub gpu_types: BTreeMap<u32, Vec<String>>,
    /// Cluster's number, kind and digest to the number in the list.
    pub anchor_numbers: BTreeMap<(u32, String), u64>,
    pub anchors: BTreeMap<(u32, u64), serde_json::Value>,
    pub anchor_counts: BTreeMap<u32, u64>,
    pub heads: BTreeSet<(u32, u16)>,
    pub cursors: BTreeMap<u32, u16>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// index ‖ page ‖ slot at `at`, to the key's end.
fn place_at(bytes: &[u8], at: usize) -> (u32, Place) {
    assert_eq!(bytes.len(), at + 7, "{bytes:?}");
    (u32_at(bytes, at), (u16_at(bytes, at + 4), bytes[at + 6]))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Stored {
    pub fn read(map: &Map) -> Self {
        let mut all = Self::default();
        for (key, value) in map {
            all.take(key, value);
        }
        all
    }

    fn slot(&mut self, at: (u32, Place)) -> &mut Slot {
        assert!(at.1.1 < 64);
        self.slots.entry(at).or_default()
    }

    /// The slots of one page in order; `width` bytes each after the version byte.
    fn page(&mut self, key: &[u8], value: &[u8], width: usize, put: fn(&mut Slot, &[u8])) {
        assert_eq!((value[0], (value.len() - 1) % width), (1, 0));
        assert!(value.len() <= 1 + 64 * width);
        for (slot, bytes) in value[1..].chunks_exact(width).enumerate() {
            let at = (u32_at(key, 1), (u16_at(key, 5), slot as u8));
            put(self.slot(at), bytes);
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        match key[0] {
            0x00 => {
                assert!(key.starts_with(b"\x00\x07cluster"), "unknown key {key:?}");
                let info = serde_json::from_slice(value).unwrap();
                self.infos.insert(text(&key[9..]), info);
            }
            0x01 => {
                assert_eq!((value[0], value[1] & !1), (1, 0));
                let cluster = Cluster {
                    id: text(&key[1..]),
                    active: value[1] == 1,
                    slots: u32_at(value, 6),
                    sums: value[14..].to_vec(),
                };
                assert!(self.clusters.insert(u32_at(value, 2), cluster).is_none());
            }
            0x02 => match key[7] {
                0 => {
                    assert_eq!(value, [1]);
                    self.heads.insert((u32_at(key, 1), u16_at(key, 5)));
                }
                1 => self.page(key, value, 48, |slot, bytes| slot.key = bytes.to_vec()),
                2 => self.page(key, value, 17, |slot, bytes| slot.section_entry = bytes.to_vec()),
                3 => self.page(key, value, 22, |slot, bytes| {
                    slot.record = HotRecord::decode(bytes.try_into().unwrap());
                    assert!(slot.record.is_some() || bytes == [0; 22]);
                }),
                other => panic!("unknown kind of page {other}"),
            },
            0x03 => self.page(key, value, 8, |_, _| {}),
            0x04 => self.slot(place_at(key, 1)).id = Some(text(value)),
            0x05 => self.slot(place_at(key, 1)).section = Some(value.to_vec()),
            0x06 => {
                assert_eq!(value.len(), 48);
                self.slot(place_at(key, 1)).previous = true;
            }
            0x07 => self.slot(place_at(key, 1)).drain = true,
            0x08 => {
                assert_eq!(value, [1]);
                self.slot(place_at(key, 1)).free = true;
            }
            0x09 => {
                self.fingerprints.insert(key[1..].to_vec(), place_at(value, 0));
            }
            0x0a => assert_eq!((key.len(), value.len()), (37, 4)),
            0x0c => assert!(key.len() == 1 && value.len() >= 26),
            0x0d => self.epoch = u64_at(value, 0),
            0x0e => self.count = u32_at(value, 0),
            0x0f if key.len() == 1 => assert_eq!(value.len(), 6),
            0x0f => {
                self.cursors.insert(u32_at(key, 1), u16_at(value, 0));
            }
            0x10 => {
                self.ids.insert(u32_at(key, 1), text(value));
            }
            0x11 => {
                let (mut rest, mut names) = (value, Vec::new());
                while let Some((len, tail)) = rest.split_first() {
                    let (name, tail) = tail.split_at(usize::from(*len));
                    names.push(text(name));
                    rest = tail;
                }
                self.gpu_types.insert(u32_at(key, 1), names);
            }
            0x12 => {
                let zero = key.iter().position(|b| *b == 0).unwrap();
                assert_eq!((key.len(), value.len()), (zero + 5, 3));
                let at = (text(&key[1..zero]), u32_at(key, zero + 1));
                self.places.insert(at, (u16_at(value, 0), value[2]));
            }
            0x13 => {
                let identity = serde_json::from_slice(value).unwrap();
                self.slot(place_at(key, 1)).identity = Some(identity);
            }
            0x14 => {
                let (cluster, place) = place_at(key, 5);
                self.due.insert((u32_at(key, 1), cluster, place));
            }
            0x15 => {
                let name = hex(&key[5..]);
                self.anchor_numbers
                    .insert((u32_at(key, 1), name), u64_at(value, 0));
            }
            0x16 => {
                let anchor = serde_json::from_slice(value).unwrap();
                self.anchors.insert((u32_at(key, 1), u64_at(key, 5)), anchor);
            }
            0x17 => {
                self.anchor_counts.insert(u32_at(key, 1), u64_at(value, 0));
            }
            0x18 => assert_eq!((key.len(), value.len()), (1, 36)),
            _ => assert!(key == b"config" || key == b"contract_info", "unknown key {key:?}"),
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
