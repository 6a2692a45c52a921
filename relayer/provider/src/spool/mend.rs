//! A row of a node that cannot be read, as after damage to the disk, keeps nobody else's reports out: what of it can be read
//! stays, and the rest follows from what else is on record. Only a report that does not say any more which one it is, or what
//! was signed, is lost.

use std::collections::BTreeSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use super::accept::Accept;
use super::history::{self, End, EndedAs};
use super::mend_bound;
use super::rows::{self, Intake, Member, unreadable};
use crate::clock;
use crate::db::{self, Conn, Pool, Row};
use crate::store::{Store, StoreError, bytes, int, sequence, text, uint};

/// Cluster and node as they stand in a row.
type Key<'k> = (&'k str, &'k str);

/// Writes the rows of these reports' nodes anew that cannot be read. None: all can. Else what was done to the last of them;
/// the log says it of each. `journal`: there is one, and it has these reports.
///
/// # Errors
/// If the store fails.
pub(super) async fn mend(
    store: &Store,
    reports: impl Iterator<Item = &Accept>,
    journal: bool,
) -> Result<Option<String>, StoreError> {
    let mut all = Vec::new();
    let mut tx = store.begin().await?;
    for report in reports {
        let of = (report.cluster_id.as_str(), report.node_id.as_str());
        all.extend(intake(&mut tx, of).await?);
        let newer = Some(Newer { report, journal });
        all.extend(waiting(&mut tx, of, newer, report.received_at).await?);
    }
    tx.commit().await?;
    Ok(told(all))
}

/// The same of whatever node, for those that report no more, and of what is bound to a transaction.
///
/// # Errors
/// If the store fails.
pub(super) async fn mend_all(store: &Store) -> Result<Option<String>, StoreError> {
    let broken = broken(store.reader()).await?;
    let bound = mend_bound::broken(store.reader()).await?;
    if broken.is_empty() && bound.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    let mut tx = store.begin().await?;
    for (cluster, node) in &broken {
        let of = (cluster.as_str(), node.as_str());
        all.extend(intake(&mut tx, of).await?);
        all.extend(waiting(&mut tx, of, None, clock::now_ms()).await?);
    }
    for batch in bound {
        all.extend(mend_bound::mend(&mut tx, batch, clock::now_ms()).await?);
    }
    tx.commit().await?;
    Ok(told(all))
}

/// What waits of a node; a row that cannot be read is written anew before.
///
/// # Errors
/// If the store fails.
pub(super) async fn held(conn: &mut Conn, of: Key<'_>, now_ms: u64) -> Result<Option<Member>, StoreError> {
    let row = row_of(conn, of).await?;
    match row.as_ref().map(Member::read).transpose() {
        Err(e) if e.is_unreadable() => {
            told(waiting(conn, of, None, now_ms).await?.into_iter().collect());
            let row = row_of(conn, of).await?;
            row.as_ref().map(Member::read).transpose()
        }
        read => read,
    }
}

/// Says it of each; what was said last.
fn told(all: Vec<String>) -> Option<String> {
    let mut last = None;
    for what in all {
        let what = format!("{what}; look at the disk, and restore a backup if there are more");
        tracing::error!("{what}");
        last = Some(what);
    }
    last
}

/// The nodes with a row that cannot be read.
async fn broken(pool: &Pool) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut found = BTreeSet::new();
    let mut note = |row: &Row, column: Option<String>| match (column, rows::key(row)) {
        (Some(_), Ok(of)) => {
            found.insert(of);
        }
        (Some(column), Err(_)) => {
            tracing::error!(
                "a row names no node and is passed over, its {column} cannot be read; look at the disk, and restore a backup"
            );
        }
        (None, _) => {}
    };
    for row in db::query(rows::INTAKES).fetch_all(pool).await? {
        note(&row, unreadable(Intake::read(&row))?);
    }
    // Their heartbeats are by far the largest part, and not asked for.
    let waiting = db::query(
        "SELECT cluster_id, node_id, epoch, sequence, report, signature, queued_at, received_at, superseded_from,
         superseded_count FROM waiting",
    );
    for row in waiting.fetch_all(pool).await? {
        note(&row, unreadable(Member::read(&row))?);
    }
    Ok(found)
}

async fn intake(conn: &mut Conn, (cluster, node): Key<'_>) -> Result<Option<String>, StoreError> {
    let row = db::query("SELECT * FROM intake WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster)
        .bind(node)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(column) = unreadable(Intake::read(&row))? else {
        return Ok(None);
    };
    if text::<ClusterId>(&row, "cluster_id").is_err() || text::<NodeId>(&row, "node_id").is_err() {
        db::query("DELETE FROM intake WHERE cluster_id = ? AND node_id = ?")
            .bind(cluster)
            .bind(node)
            .execute(conn)
            .await?;
        return Ok(Some(format!(
            "a row of intake for {node:?} in {cluster:?}, which is no node, was taken away"
        )));
    }
    let known = known(conn, (cluster, node)).await?;
    // 0 is none: whatever comes is newer.
    let newest = known.first().map_or(0, |(epoch, _)| *epoch);
    let epoch = uint(&row, "epoch").unwrap_or(newest);
    let acked = known.iter().find(|(of, _)| *of == epoch).map_or(0, |(_, s)| *s);
    let highest = known.iter().map(|(_, s)| *s).max().unwrap_or(0);
    db::query(
        "UPDATE intake SET epoch = ?, acked_sequence = ?, highest_sequence = ?, received_at = ?, refusal_code = NULL,
         refusal_sequence = NULL, refusal_at = NULL WHERE cluster_id = ? AND node_id = ?",
    )
    .bind(int(epoch))
    .bind(i64::from(sequence(&row, "acked_sequence").unwrap_or(acked)))
    .bind(i64::from(sequence(&row, "highest_sequence").unwrap_or(highest)))
    .bind(int(uint(&row, "received_at").unwrap_or(0)))
    .bind(cluster)
    .bind(node)
    .execute(conn)
    .await?;
    Ok(Some(format!(
        "intake.{column} of {node} in {cluster} could not be read and was written anew from what else is on record"
    )))
}

/// The epochs of a node on record, the newest first, each with its highest sequence.
async fn known(conn: &mut Conn, (cluster, node): Key<'_>) -> Result<Vec<(u64, u32)>, StoreError> {
    let rows = db::query(
        "SELECT epoch, max(sequence) AS sequence FROM (
           SELECT epoch, sequence FROM report_end WHERE cluster_id = ?1 AND node_id = ?2
           UNION ALL SELECT epoch, sequence FROM batch_report WHERE cluster_id = ?1 AND node_id = ?2
           UNION ALL SELECT epoch, sequence FROM waiting WHERE cluster_id = ?1 AND node_id = ?2) AS known
         WHERE epoch >= 0 AND sequence BETWEEN 0 AND ?3 GROUP BY epoch ORDER BY epoch DESC",
    )
    .bind(cluster)
    .bind(node)
    .bind(i64::from(u32::MAX))
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| Ok((uint(row, "epoch")?, sequence(row, "sequence")?)))
        .collect()
}

/// A report that has come of the node.
#[derive(Clone, Copy)]
struct Newer<'r> {
    report: &'r Accept,
    /// It is in the journal.
    journal: bool,
}

async fn row_of(conn: &mut Conn, (cluster, node): Key<'_>) -> Result<Option<Row>, StoreError> {
    let row = db::query("SELECT * FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster)
        .bind(node)
        .fetch_optional(conn)
        .await?;
    Ok(row)
}

async fn waiting(
    conn: &mut Conn,
    (cluster, node): Key<'_>,
    newer: Option<Newer<'_>>,
    now_ms: u64,
) -> Result<Option<String>, StoreError> {
    let Some(row) = row_of(conn, (cluster, node)).await? else {
        return Ok(None);
    };
    let Some(column) = unreadable(Member::read(&row))? else {
        return Ok(None);
    };
    let left = Member::left(&row);
    let signed = bytes::<70>(&row, "report").is_ok() && bytes::<64>(&row, "signature").is_ok();
    if let Some(member) = left.as_ref().filter(|_| signed) {
        write_anew(conn, member, now_ms).await?;
        return Ok(Some(format!(
            "waiting.{column} of {node} in {cluster} could not be read and was written anew; its report waits as before"
        )));
    }
    db::query("DELETE FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster)
        .bind(node)
        .execute(&mut *conn)
        .await?;
    let then = match left {
        Some(held) => give_up(conn, &held, newer, now_ms).await?,
        None => "which report it was is lost".to_owned(),
    };
    // At a start the database may have held reports of the journal already, and has lost them so: they are taken in again.
    if let Some(Newer {
        report,
        journal: true,
    }) = newer
    {
        db::query(
            "UPDATE intake SET acked_sequence = CASE WHEN epoch = ?3 THEN ?4 ELSE acked_sequence - 1 END
             WHERE cluster_id = ?1 AND node_id = ?2
               AND ((epoch = ?3 AND acked_sequence > ?4) OR (epoch > ?3 AND acked_sequence > 0))",
        )
        .bind(cluster)
        .bind(node)
        .bind(int(report.epoch))
        .bind(i64::from(report.sequence.saturating_sub(1)))
        .execute(conn)
        .await?;
    }
    Ok(Some(format!(
        "waiting.{column} of {node:?} in {cluster:?} could not be read and the row was taken away: {then}"
    )))
}

/// Its report can be read, and what is about it follows.
async fn write_anew(conn: &mut Conn, m: &Member, now_ms: u64) -> Result<(), StoreError> {
    let since = |at: u64| int(if at == 0 { now_ms } else { at });
    db::query(
        "UPDATE waiting SET sequence = ?, queued_at = ?, received_at = ?, superseded_from = ?, superseded_count = ?
         WHERE cluster_id = ? AND node_id = ?",
    )
    .bind(i64::from(m.sequence))
    .bind(since(m.queued_at))
    .bind(since(m.received_at))
    .bind(m.superseded_from.map(i64::from))
    .bind(int(m.superseded_count))
    .bind(m.cluster_id.as_str())
    .bind(m.node_id.as_str())
    .execute(conn)
    .await?;
    Ok(())
}

/// What was signed cannot be read any more: the report ends, unless the journal has it.
async fn give_up(
    conn: &mut Conn,
    held: &Member,
    newer: Option<Newer<'_>>,
    now_ms: u64,
) -> Result<String, StoreError> {
    let (epoch, sequence) = (held.epoch, held.sequence);
    let end = match newer {
        Some(newer) if newer.report.epoch > epoch => {
            End::local(EndedAs::Superseded, Some(Code::SupersededByRotation))
        }
        Some(newer) if (newer.report.epoch, newer.report.sequence) > (epoch, sequence) => {
            End::local(EndedAs::Superseded, None)
        }
        Some(Newer { journal: true, .. }) => {
            return Ok("its report is taken in again where the journal has it".to_owned());
        }
        Some(_) | None => End::local(EndedAs::Refused, Some(Code::Unavailable)),
    };
    history::end(conn, held, &end, now_ms).await?;
    let how = match end.ended {
        EndedAs::Superseded => "superseded",
        EndedAs::OnChain | EndedAs::Refused => "refused",
    };
    Ok(format!(
        "its report {sequence} of epoch {epoch} has ended as {how}"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::super::writer::commit;
    use super::super::{
        EndRow, depth, ends_of, intake_of, intakes, metas, return_member, supersede_older, waiting_of,
    };
    use super::*;
    use crate::db::Value;

    /// Node 1's report 4 is there, with this value in a column.
    async fn damaged(
        dir: &tempfile::TempDir,
        (table, column): (&str, &str),
        value: impl Into<Value<'static>>,
    ) -> Store {
        let store = Store::for_test(&dir.path().join("p.db")).await;
        commit(&store, &[report(1, 4, 7)]).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        let done = db::query(format!("UPDATE {table} SET {column} = ?")).bind(value);
        done.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        store
    }

    async fn waits(store: &Store) -> Vec<Member> {
        let of = report(1, 1, 1);
        let mut conn = store.reader().acquire().await.unwrap();
        let found = waiting_of(&mut conn, &[(&of.cluster_id, &of.node_id)]).await;
        found
            .unwrap()
            .rows
            .into_iter()
            .map(|(member, _)| member)
            .collect()
    }

    async fn ends(store: &Store) -> Vec<EndRow> {
        let of = report(1, 1, 1);
        let ends = ends_of(store.reader(), &of.cluster_id, &of.node_id, 9).await;
        ends.unwrap()
    }

    async fn acked(store: &Store) -> u32 {
        let of = report(1, 1, 1);
        let intake = intake_of(store.reader(), &of.cluster_id, &of.node_id).await;
        intake.unwrap().unwrap().acked_sequence
    }

    const TOO_LARGE: i64 = 1 << 32;

    #[tokio::test]
    async fn a_row_that_cannot_be_read_is_written_anew_and_the_next_report_is_taken_in() {
        // Table, column, value, how many the next report replaces.
        for (table, column, value, replaced) in [
            ("waiting", "epoch", -1, 0),
            ("waiting", "sequence", TOO_LARGE, 1),
            ("waiting", "queued_at", -1, 1),
            ("waiting", "superseded_from", -1, 1),
            ("waiting", "superseded_count", -1, 1),
            ("intake", "acked_sequence", TOO_LARGE, 1),
        ] {
            let (dir, named) = (tempfile::tempdir().unwrap(), format!("{table}.{column}"));
            let store = damaged(&dir, (table, column), value).await;
            let new = report(1, 5, 9);
            let failed = commit(&store, std::slice::from_ref(&new)).await.unwrap_err();
            assert!(failed.is_unreadable(), "{named}: {failed}");
            let again = async || mend(&store, std::iter::once(&new), true).await.unwrap();
            let what = again().await.unwrap();
            assert!(what.contains(&named) && what.contains("node-0001"), "{what}");
            assert_eq!(again().await, None);
            let answers = commit(&store, std::slice::from_ref(&new)).await.unwrap();
            assert!(answers[0].accepted, "{named}");
            let waits = waits(&store).await;
            assert_eq!(
                (waits[0].sequence, waits[0].superseded_count),
                (5, replaced),
                "{named}"
            );
            assert_eq!(metas(store.reader()).await.unwrap().rows.len(), 1);
            let of = (&new.cluster_id, &new.node_id);
            let intake = intake_of(store.reader(), of.0, of.1).await.unwrap().unwrap();
            let sequences = (intake.acked_sequence, intake.highest_sequence);
            assert_eq!(sequences, (5, 5), "{named}");
            assert!(ends(&store).await.is_empty(), "{named}");
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_report_that_was_there_and_cannot_be_read_any_more_is_taken_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = damaged(&dir, ("waiting", "signature"), vec![2u8]).await;
        let same = report(1, 4, 7);
        let what = mend(&store, std::iter::once(&same), true).await.unwrap();
        assert!(what.unwrap().contains("is taken in again"));
        assert!(commit(&store, std::slice::from_ref(&same)).await.unwrap()[0].accepted);
        let waits = waits(&store).await;
        assert_eq!((waits[0].sequence, waits[0].superseded_count), (4, 0));
        assert!(ends(&store).await.is_empty());
        assert_eq!(depth(store.reader()).await.unwrap().waiting, 1);
    }

    #[tokio::test]
    async fn without_a_journal_a_repeat_takes_nothing_back_that_was_accepted() {
        for (column, value, waiting) in [
            ("queued_at", Value::from(-1i64), 1),
            ("signature", Value::from(vec![2u8]), 0),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = damaged(&dir, ("waiting", column), value).await;
            let stale = report(1, 3, 6);
            let what = mend(&store, std::iter::once(&stale), false).await.unwrap();
            assert!(what.unwrap().contains(column));
            assert_eq!(acked(&store).await, 4, "{column}");
            let answers = commit(&store, std::slice::from_ref(&stale)).await.unwrap();
            assert!(!answers[0].accepted, "{column}");
            assert_eq!(waits(&store).await.len(), waiting, "{column}");
            // What is lost has an end.
            let ends: Vec<_> = ends(&store)
                .await
                .into_iter()
                .map(|e| (e.sequence, e.ended))
                .collect();
            let lost = (waiting == 0).then(|| (4, "refused".to_owned()));
            assert_eq!(ends, Vec::from_iter(lost), "{column}");
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_report_of_an_older_registration_that_cannot_be_read_ends_by_the_rotation() {
        for journal in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let store = damaged(&dir, ("waiting", "signature"), vec![2u8]).await;
            let new = report(2, 1, 9);
            mend(&store, std::iter::once(&new), journal).await.unwrap();
            assert!(commit(&store, std::slice::from_ref(&new)).await.unwrap()[0].accepted);
            let ends = ends(&store).await;
            let end = (ends[0].epoch, ends[0].ended.as_str(), ends[0].code);
            assert_eq!(end, (1, "superseded", Some(Code::SupersededByRotation)));
            assert_eq!(ends.len(), 1);
            store.close().await;
        }
    }

    #[tokio::test]
    async fn what_reads_all_passes_a_row_over_that_cannot_be_read_until_it_is_mended() {
        for (table, column, value) in [
            ("waiting", "queued_at", -1i64),
            ("waiting", "sequence", -1),
            ("intake", "highest_sequence", -1),
            ("intake", "received_at", -1),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = damaged(&dir, (table, column), value).await;
            let other = Accept {
                node_id: "node-0002".parse().unwrap(),
                ..report(1, 4, 8)
            };
            commit(&store, std::slice::from_ref(&other)).await.unwrap();
            let found = metas(store.reader()).await.unwrap();
            let of_intake = table == "intake";
            assert_eq!(
                (found.rows.len(), found.broken),
                (1 + usize::from(of_intake), !of_intake)
            );
            let known = intakes(store.reader()).await.unwrap().len();
            assert_eq!(known, 2 - usize::from(of_intake), "{table}.{column}");
            let depth = depth(store.reader()).await.unwrap();
            assert_eq!(depth.waiting, 2);
            assert_eq!(depth.oldest, Some(if column == "queued_at" { 8 } else { 7 }));
            let what = mend_all(&store).await.unwrap().unwrap();
            assert!(what.contains(&format!("{table}.{column}")), "{what}");
            assert_eq!(mend_all(&store).await.unwrap(), None);
            assert!(!metas(store.reader()).await.unwrap().broken);
            assert_eq!(intakes(store.reader()).await.unwrap().len(), 2);
            store.close().await;
        }
    }

    #[tokio::test]
    async fn an_epoch_that_cannot_be_read_is_the_newest_on_record_and_no_older_report_counts() {
        let dir = tempfile::tempdir().unwrap();
        let store = damaged(&dir, ("intake", "epoch"), -1i64).await;
        let what = mend_all(&store).await.unwrap().unwrap();
        assert!(
            what.contains("intake.epoch") && what.contains("look at the disk"),
            "{what}"
        );
        let of = report(1, 1, 1);
        let intake = intake_of(store.reader(), &of.cluster_id, &of.node_id).await;
        let intake = intake.unwrap().unwrap();
        let known = (intake.epoch, intake.acked_sequence, intake.highest_sequence);
        assert_eq!(known, (1, 4, 4));
        let answers = commit(&store, &[report(1, 3, 9)]).await.unwrap();
        assert!(!answers[0].accepted);
        assert_eq!(waits(&store).await[0].sequence, 4);
        store.close().await;
    }

    #[tokio::test]
    async fn a_row_of_what_is_no_node_is_taken_away() {
        for table in ["waiting", "intake"] {
            let dir = tempfile::tempdir().unwrap();
            let store = damaged(&dir, (table, "cluster_id"), "no cluster!".to_owned()).await;
            let what = mend_all(&store).await.unwrap().unwrap();
            assert!(what.contains("no cluster!"), "{what}");
            assert_eq!(mend_all(&store).await.unwrap(), None);
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_hinders_no_end_and_no_return() {
        let dir = tempfile::tempdir().unwrap();
        let of = report(1, 4, 7);
        // What a dead transaction had counts for the one that waits.
        let store = damaged(&dir, ("waiting", "queued_at"), -1i64).await;
        let mut tx = store.begin().await.unwrap();
        return_member(&mut tx, &report(1, 3, 5).member(), 9)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let waits = waits(&store).await;
        assert_eq!((waits[0].sequence, waits[0].superseded_count), (4, 1));
        // A newer registration ends what can be told.
        let mut tx = store.begin().await.unwrap();
        let done = db::query("UPDATE waiting SET superseded_count = -1");
        done.execute(&mut *tx).await.unwrap();
        supersede_older(&mut tx, &of.cluster_id, &of.node_id, 2, 9)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(ends(&store).await.len(), 1);
        assert_eq!(depth(store.reader()).await.unwrap().waiting, 0);
        store.close().await;
    }
}
