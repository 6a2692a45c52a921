use std::fs;

use proptest::prelude::*;

use super::super::journal::Journal;
use super::bench::*;

fn journal_of_a_launch() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.run(&launch(&node.site, "task-1", "vm-1"));
    node.domain.stop();
    let file = node.host.dir.journal().join("task-1.log");
    let bytes = fs::read(&file).unwrap();
    (dir, file, bytes)
}

#[test]
fn a_journal_cut_anywhere_reads_to_its_last_whole_record_and_holds_no_secret() {
    let (_dir, file, bytes) = journal_of_a_launch();
    assert!(!bytes.windows(7).any(|w| w == b"hunter2"));
    let first = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
    for cut in 0..bytes.len() {
        fs::write(&file, &bytes[..cut]).unwrap();
        let journal = Journal::open(&file, true).unwrap();
        assert_eq!(journal.is_some(), cut >= first, "{cut}");
        let whole = bytes[..cut]
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        match journal {
            Some(_) => assert_eq!(fs::read(&file).unwrap(), bytes[..whole]),
            None => assert!(!file.exists()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_make_the_reader_of_journals_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.log");
        fs::write(&file, bytes).unwrap();
        drop(Journal::open(&file, true));
    }
}
