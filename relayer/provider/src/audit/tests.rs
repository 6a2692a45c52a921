use hpc_schema::registry::AnchorView;
use hpc_schema::time::UnixSeconds;
use proptest::prelude::*;

use super::*;
use crate::db;
use crate::store::Store;

fn entry(n: u64) -> Entry {
    Entry {
        at: 1_800_000_000_000 + n,
        by: Actor::command_line(format!("user{n}")),
        action: "node.disable",
        target: format!("node hpc-cluster-1/node-{n:04}"),
        result: "done",
        detail: serde_json::json!({ "reason": "disk is failing" }),
    }
}

fn rows(count: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut chain = Chain::default();
    for n in 1..=count {
        let entry = entry(n);
        let mut row = Row {
            seq: n,
            at: entry.at,
            actor: entry.by.name,
            role: "admin".to_owned(),
            via: "command_line".to_owned(),
            action: entry.action.to_owned(),
            target: entry.target,
            result: entry.result.to_owned(),
            detail: entry.detail.to_string(),
            previous: hex::encode(chain.digest),
            digest: String::new(),
        };
        row.digest = hex::encode(row.digest_after(&chain.digest));
        chain.follow(&row).unwrap();
        rows.push(row);
    }
    rows
}

/// What a reader of the whole finds; the head is that of the honest log.
fn broken(rows: &[Row], head: &Row) -> bool {
    let mut chain = Chain::default();
    rows.iter().any(|row| chain.follow(row).is_err()) || hex::encode(chain.digest) != head.digest
}

proptest! {
    #[test]
    fn any_altered_removed_repeated_or_moved_row_is_found(
        count in 2u64..12, at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(), what in 0..13u8
    ) {
        let honest = rows(count);
        let head = honest.last().unwrap().clone();
        prop_assert!(!broken(&honest, &head));
        let mut spoilt = honest.clone();
        let i = at.index(spoilt.len());
        let j = other.index(spoilt.len());
        match what {
            0 => drop(spoilt.remove(i)),
            1 => { let row = spoilt[i].clone(); spoilt.insert(i, row); }
            2 => { prop_assume!(i != j); spoilt.swap(i, j); }
            3 => {
                // With the numbers put right again.
                prop_assume!(i != j);
                spoilt.swap(i, j);
                for (n, row) in (1..).zip(&mut spoilt) { row.seq = n; }
            }
            4 => spoilt[i].at += 1,
            5 => spoilt[i].actor.push('x'),
            6 => spoilt[i].role = "viewer".to_owned(),
            7 => spoilt[i].action = "node.enable".to_owned(),
            8 => spoilt[i].target.push(' '),
            9 => spoilt[i].result = "refused".to_owned(),
            10 => spoilt[i].detail = "{}".to_owned(),
            // A byte from one text to the next.
            11 => { let c = spoilt[i].actor.pop().unwrap(); spoilt[i].role.insert(0, c); }
            _ => {
                // Altered, and its own digest made right.
                spoilt[i].target = "node other".to_owned();
                let before = spoilt[i].previous.clone();
                let before: Digest = hex::decode(before).unwrap().try_into().unwrap();
                spoilt[i].digest = hex::encode(spoilt[i].digest_after(&before));
            }
        }
        prop_assert!(broken(&spoilt, &head));
    }
}

async fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("p.db")).await.unwrap();
    for n in 1..=5 {
        let mut tx = store.begin().await.unwrap();
        append(&mut tx, &entry(n)).await.unwrap();
        tx.commit().await.unwrap();
    }
    (dir, store)
}

#[tokio::test]
async fn several_rows_at_once_stand_one_after_the_other() {
    let (_dir, store) = store().await;
    for entries in [vec![], vec![entry(6)], vec![entry(7), entry(8), entry(9)]] {
        let (tx, rows) = store.begin_together(vec![ask_head()]).await.unwrap();
        let [head] = db::each(rows).unwrap();
        tx.commit_together(after(told_head(&head).unwrap(), &entries))
            .await
            .unwrap();
    }
    assert_eq!(verify(store.reader(), |_| {}).await.unwrap().unwrap().seq, 9);
}

#[tokio::test]
async fn the_store_refuses_to_change_or_remove_a_row() {
    let (_dir, store) = store().await;
    assert_eq!(verify(store.reader(), |_| {}).await.unwrap().unwrap().seq, 5);
    for statement in [
        "UPDATE audit SET actor = 'nobody' WHERE seq = 3",
        "DELETE FROM audit WHERE seq = 5",
    ] {
        let mut tx = store.begin().await.unwrap();
        let error = db::query(statement).execute(&mut *tx).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

#[tokio::test]
async fn what_was_changed_behind_the_stores_back_is_found() {
    for (statement, what) in [
        (
            "UPDATE audit SET actor = 'nobody' WHERE seq = 3",
            "row 3 was altered",
        ),
        (
            "UPDATE audit SET digest = zeroblob(32) WHERE seq = 5",
            "row 5 was altered",
        ),
        ("DELETE FROM audit WHERE seq = 3", "after row 2 comes row 4"),
        ("DELETE FROM audit WHERE seq > 3", "ends at row 3"),
        ("DELETE FROM audit", "ends at row 0"),
    ] {
        let (_dir, store) = store().await;
        let mut tx = store.begin().await.unwrap();
        for trigger in ["audit_is_never_changed", "audit_is_never_shortened"] {
            let drop = match trigger {
                "audit_is_never_changed" => "DROP TRIGGER audit_is_never_changed",
                _ => "DROP TRIGGER audit_is_never_shortened",
            };
            db::query(drop).execute(&mut *tx).await.unwrap();
        }
        db::query(statement).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        let found = verify(store.reader(), |_| {}).await.unwrap().unwrap_err();
        assert!(found.to_string().contains(what), "{statement}: {found}");
    }
}

#[test]
fn a_log_that_was_written_anew_is_found_by_its_anchors() {
    let log = rows(6);
    let anchor = |digest: &str, sender: &str, time: u64| AnchorView {
        kind: KIND.to_owned(),
        digest: digest.to_owned(),
        sender: sender.to_owned(),
        height: time * 10,
        time: UnixSeconds(time),
    };
    let ours = ["wasm1ours".to_owned()];
    let mut anchors = vec![
        anchor(&log[1].digest, &ours[0], 10),
        anchor(&log[4].digest, &ours[0], 20),
    ];
    // Anybody may anchor anything.
    anchors.push(anchor(&"ab".repeat(32), "wasm1other", 30));
    let good = check(&anchors, &ours, log.iter());
    assert_eq!(
        (good.anchors, good.anchored_up_to, good.anchored_at),
        (2, 5, Some(UnixSeconds(20)))
    );
    assert_eq!((good.from_height, good.to_height), (Some(100), Some(200)));
    assert!(good.missing.is_empty());
    // The end cut off, and the head's record with it.
    assert_eq!(
        check(&anchors, &ours, log[..4].iter()).missing,
        [log[4].digest.clone()]
    );
    // Another log of the same length.
    let mut other = Vec::new();
    let mut chain = Chain::default();
    for mut row in log.clone() {
        row.actor = "somebody else".to_owned();
        row.previous = hex::encode(chain.digest);
        row.digest = hex::encode(row.digest_after(&chain.digest));
        chain.follow(&row).unwrap();
        other.push(row);
    }
    assert_eq!(check(&anchors, &ours, other.iter()).missing.len(), 2);
}
