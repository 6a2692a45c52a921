use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;

use super::super::tests::report;
use super::entry::put;
use super::*;

fn entries(sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, &report(1, sequence, 7));
    bytes
}

fn draft(sequence: u32) -> Draft {
    let mut draft = Draft::default();
    draft.add(&report(1, sequence, 7));
    draft
}

#[test]
fn what_is_summed_up_piece_by_piece_is_the_sum_of_the_whole() {
    let mut draft = Draft::default();
    for round in 1..=3 {
        let mut entries = Vec::new();
        assert!(draft.is_empty());
        for sequence in 1..=round * 40 {
            draft.add(&report(1, sequence, 7));
            put(&mut entries, &report(1, sequence, 7));
        }
        let (length, number) = (u32::try_from(entries.len()).unwrap(), u64::from(round) << 40);
        let sum = draft::checksum(length, number, &entries);
        let head = [
            &length.to_be_bytes()[..],
            &number.to_be_bytes(),
            &sum.to_be_bytes(),
        ]
        .concat();
        let whole = [&b"VEJ1"[..], &head, &entries].concat();
        assert_eq!(draft.seal(number).unwrap(), whole);
        assert_eq!(Draft::of(&entries).seal(number).unwrap(), whole);
        draft.clear();
    }
}

#[test]
fn a_report_is_read_as_it_was_written_and_what_is_cut_is_none() {
    let mut bytes = Vec::new();
    let mut without = report(u64::MAX, u32::MAX, 9);
    without.full = None;
    without.section = vec![5; 300];
    for one in [&report(1, 2, 3), &without] {
        put(&mut bytes, one);
    }
    let read = read_all(&bytes).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", [report(1, 2, 3), without]));
    for cut in 1..bytes.len() {
        let whole = read_all(&bytes[..cut]).map_or(0, |r| r.len());
        assert!(whole <= 1, "{cut}");
    }
}

#[test]
fn the_files_are_their_owners_alone_and_grow_by_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, groups) = Journal::open(dir.path(), 0).unwrap();
    assert!(groups.is_empty());
    assert_eq!(journal.write(&mut draft(1)).unwrap(), 1);
    let sizes: Vec<u64> = paths(dir.path())
        .iter()
        .map(|path| {
            let meta = fs::metadata(path).unwrap();
            assert_eq!(meta.permissions().mode() & 0o077, 0);
            meta.len()
        })
        .collect();
    assert_eq!(sizes, [1 << 20, 0]);
}

#[test]
fn a_full_disk_refuses_a_group_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let [first, _] = paths(dir.path());
    std::os::unix::fs::symlink("/dev/full", &first).unwrap();
    let (mut journal, _) = Journal::open(dir.path(), 0).unwrap();
    let refused = journal.write(&mut draft(1)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    // There is room again.
    fs::remove_file(&first).unwrap();
    assert_eq!(journal.write(&mut draft(2)).unwrap(), 2);
    // Its file is put elsewhere, and a group fails for it.
    fs::rename(&first, dir.path().join("aside")).unwrap();
    journal.active.lose();
    assert_eq!(journal.write(&mut draft(3)).unwrap(), 3);
    drop(journal);
    let (_, groups) = Journal::open(dir.path(), 0).unwrap();
    let third = Group {
        number: 3,
        entries: entries(3),
    };
    assert_eq!(groups, [third]);
}

#[test]
fn what_is_not_taken_in_has_its_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path(), 0).unwrap();
    let applied = journal.applied();
    let mut group = Draft::of(&vec![7; 1 << 20]);
    let mut last = 0;
    let refused = loop {
        match journal.write(&mut group) {
            Ok(number) => last = number,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!((60..=128).contains(&last), "{last}");
    applied.set(last);
    assert!(journal.write(&mut group).unwrap() > last);
    let bytes: u64 = paths(dir.path())
        .iter()
        .map(|p| fs::metadata(p).unwrap().len())
        .sum();
    assert!(bytes <= 130 << 20, "{bytes}");
}

#[derive(Debug, Clone)]
enum Step {
    /// A group of so many bytes.
    Write(usize),
    /// SQLite has taken in all but so many of the newest groups.
    Apply(u64),
    /// The process dies and starts anew.
    Kill,
    /// The same in the middle of writing a group: so many bytes of it are there, and the last of them may be wrong.
    Tear(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![8 => 1usize..4000, 1 => 400_000usize..700_000];
    let step = prop_oneof![
        12 => size.prop_map(Step::Write),
        4 => (0u64..6).prop_map(Step::Apply),
        1 => Just(Step::Kill),
        1 => (1usize..3000, any::<bool>()).prop_map(|(n, wrong)| Step::Tear(n, wrong)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn whatever_happens_each_group_that_was_written_is_applied_or_found(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path(), 0).unwrap();
        let (mut written, mut on_record) = (BTreeMap::new(), 0u64);
        for (byte, step) in (1u8..).zip(steps) {
            match step {
                Step::Write(size) => {
                    let group = vec![byte; size];
                    written.insert(journal.write(&mut Draft::of(&group)).unwrap(), group);
                }
                Step::Apply(but) => {
                    let newest = written.keys().next_back().copied().unwrap_or(0);
                    on_record = on_record.max(newest.saturating_sub(but));
                    journal.applied().set(on_record);
                }
                Step::Kill | Step::Tear(..) => {
                    if let Step::Tear(size, wrong) = step {
                        let before = paths(dir.path()).map(|path| (fs::read(&path).unwrap(), path));
                        let number = journal.write(&mut Draft::of(&vec![byte; 4000])).unwrap();
                        let (now, end) = (journal.active.path().to_owned(), journal.active.len());
                        let mut bytes = fs::read(&now).unwrap();
                        let to = usize::try_from(end).unwrap();
                        let from = to - 4020 + size;
                        // Behind it stands what stood there before.
                        let (old, _) = before.iter().find(|(_, path)| *path == now).unwrap();
                        let old = old.iter().copied().chain(std::iter::repeat(0));
                        for (place, old) in bytes[from..to].iter_mut().zip(old.skip(from)) {
                            *place = old;
                        }
                        if wrong {
                            bytes[from - 1] ^= 0xff;
                        }
                        fs::write(&now, bytes).unwrap();
                        prop_assert!(!written.contains_key(&number));
                    }
                    drop(journal);
                    let found;
                    (journal, found) = Journal::open(dir.path(), on_record).unwrap();
                    let found: BTreeMap<_, _> = found.into_iter().map(|g| (g.number, g.entries)).collect();
                    let expected: BTreeMap<_, _> =
                        written.iter().filter(|(n, _)| **n > on_record).map(|(n, e)| (*n, e.clone())).collect();
                    prop_assert!(found == expected, "{:?} {:?}", found.keys(), expected.keys());
                }
            }
        }
    }
}
