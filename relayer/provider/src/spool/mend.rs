//! A row of a node that cannot be read, as after damage to the disk, keeps nobody else's reports out: what of it can be read
//! stays, and the rest follows from what else is on record and from the report that has come.

use hpc_schema::id::{ClusterId, NodeId};

use super::accept::Accept;
use super::history::{self, End, EndedAs};
use super::rows::{Intake, Member};
use crate::db::{self, Conn, Row};
use crate::store::{Store, StoreError, int, opt_uint, sequence, uint};

/// Writes the rows of these reports' nodes anew that cannot be read. None: all can. Else what was done to the last of them;
/// the log says it of each.
///
/// # Errors
/// If the store fails.
pub(super) async fn mend(
    store: &Store,
    reports: impl Iterator<Item = &Accept>,
) -> Result<Option<String>, StoreError> {
    let mut all = Vec::new();
    let mut tx = store.begin().await?;
    for report in reports {
        all.extend(intake(&mut tx, report).await?);
        all.extend(waiting(&mut tx, report).await?);
    }
    tx.commit().await?;
    for what in &all {
        tracing::error!("{what}; look at the disk, and restore a backup if there are more");
    }
    Ok(all.pop())
}

/// The column of the row that cannot be read, if one cannot.
fn unreadable<T>(read: Result<T, StoreError>) -> Result<Option<String>, StoreError> {
    let Err(e) = read else { return Ok(None) };
    match e.column().map(str::to_owned) {
        Some(column) => Ok(Some(column)),
        None => Err(e),
    }
}

async fn intake(conn: &mut Conn, report: &Accept) -> Result<Option<String>, StoreError> {
    let (cluster, node) = (&report.cluster_id, &report.node_id);
    let row = db::query("SELECT * FROM intake WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(column) = unreadable(Intake::read(&row))? else {
        return Ok(None);
    };
    // 0 is none: whatever comes is newer.
    let epoch = uint(&row, "epoch").unwrap_or(0);
    let known = known(conn, (cluster, node), epoch).await?;
    db::query(
        "UPDATE intake SET epoch = ?, acked_sequence = ?, highest_sequence = ?, received_at = ?, refusal_code = NULL,
         refusal_sequence = NULL, refusal_at = NULL WHERE cluster_id = ? AND node_id = ?",
    )
    .bind(int(epoch))
    .bind(i64::from(sequence(&row, "acked_sequence").unwrap_or(known.acked)))
    .bind(i64::from(sequence(&row, "highest_sequence").unwrap_or(known.highest)))
    .bind(int(uint(&row, "received_at").unwrap_or(0)))
    .bind(cluster.as_str())
    .bind(node.as_str())
    .execute(conn)
    .await?;
    Ok(Some(format!(
        "intake.{column} of {node} in {cluster} could not be read and was written anew from what else is on record"
    )))
}

/// Sequences of a node on record.
struct Known {
    /// The highest of the epoch.
    acked: u32,
    /// The highest of any.
    highest: u32,
}

async fn known(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    epoch: u64,
) -> Result<Known, StoreError> {
    let row = db::query(
        "SELECT max(CASE WHEN epoch = ?3 THEN sequence END) AS acked, max(sequence) AS highest FROM (
           SELECT epoch, sequence FROM report_end WHERE cluster_id = ?1 AND node_id = ?2
           UNION ALL SELECT epoch, sequence FROM batch_report WHERE cluster_id = ?1 AND node_id = ?2
           UNION ALL SELECT epoch, sequence FROM waiting WHERE cluster_id = ?1 AND node_id = ?2) AS known
         WHERE sequence BETWEEN 0 AND ?4",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(epoch))
    .bind(i64::from(u32::MAX))
    .fetch_one(conn)
    .await?;
    let of = |column| -> Result<u32, StoreError> {
        let highest = opt_uint(&row, column)?.unwrap_or(0);
        Ok(u32::try_from(highest).unwrap_or(u32::MAX))
    };
    Ok(Known {
        acked: of("acked")?,
        highest: of("highest")?,
    })
}

async fn waiting(conn: &mut Conn, report: &Accept) -> Result<Option<String>, StoreError> {
    let (cluster, node) = (&report.cluster_id, &report.node_id);
    let row = db::query("SELECT * FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(column) = unreadable(Member::read(&row))? else {
        return Ok(None);
    };
    db::query("DELETE FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(&mut *conn)
        .await?;
    // At a start the database may have held reports of the journal already, and has lost them so: they are taken in again.
    db::query(
        "UPDATE intake SET acked_sequence = CASE WHEN epoch = ?3 THEN ?4 ELSE acked_sequence - 1 END
         WHERE cluster_id = ?1 AND node_id = ?2
           AND ((epoch = ?3 AND acked_sequence > ?4) OR (epoch > ?3 AND acked_sequence > 0))",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(report.epoch))
    .bind(i64::from(report.sequence.saturating_sub(1)))
    .execute(&mut *conn)
    .await?;
    let then = match left(&row, report) {
        Some(held) if (held.epoch, held.sequence) < (report.epoch, report.sequence) => {
            let end = End::local(EndedAs::Superseded, None);
            history::end(conn, &held, &end, report.received_at).await?;
            let Member { epoch, sequence, .. } = held;
            format!("its report {sequence} of epoch {epoch} has ended as superseded")
        }
        Some(_) => "its report is taken in again where the journal has it".to_owned(),
        None => "which report it was is lost, and a newer one takes its place".to_owned(),
    };
    Ok(Some(format!(
        "waiting.{column} of {node} in {cluster} could not be read and the row was taken away: {then}"
    )))
}

/// What can be read of it, enough to say how it ended; none if it does not say which report it is.
fn left(row: &Row, newer: &Accept) -> Option<Member> {
    let from = opt_uint(row, "superseded_from").ok().flatten();
    Some(Member {
        epoch: uint(row, "epoch").ok()?,
        sequence: sequence(row, "sequence").ok()?,
        superseded_from: from.and_then(|n| u32::try_from(n).ok()),
        superseded_count: uint(row, "superseded_count").unwrap_or(0),
        ..newer.member()
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::super::writer::commit;
    use super::super::{depth, ends_of, intake_of, metas, waiting_of};
    use super::*;

    /// Node 1's report 4 is there, with this value in a column.
    async fn damaged(dir: &tempfile::TempDir, (table, column): (&str, &str), value: i64) -> Store {
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
        found.unwrap().into_iter().map(|(member, _)| member).collect()
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_is_written_anew_and_the_next_report_is_taken_in() {
        let too_large = i64::from(u32::MAX) + 1;
        // Table, column, value, whether the report that waited is on record.
        for (table, column, value, ended) in [
            ("waiting", "epoch", -1, false),
            ("waiting", "sequence", too_large, false),
            ("waiting", "queued_at", -1, true),
            ("waiting", "superseded_from", -1, true),
            ("waiting", "superseded_count", -1, true),
            ("intake", "acked_sequence", too_large, false),
        ] {
            let (dir, named) = (tempfile::tempdir().unwrap(), format!("{table}.{column}"));
            let store = damaged(&dir, (table, column), value).await;
            let new = report(1, 5, 9);
            let failed = commit(&store, std::slice::from_ref(&new)).await.unwrap_err();
            assert!(failed.is_unreadable(), "{named}: {failed}");
            let what = mend(&store, std::iter::once(&new)).await.unwrap().unwrap();
            assert!(what.contains(&named) && what.contains("node-0001"), "{what}");
            assert_eq!(mend(&store, std::iter::once(&new)).await.unwrap(), None);
            let answers = commit(&store, std::slice::from_ref(&new)).await.unwrap();
            assert!(answers[0].accepted, "{named}");
            assert_eq!(waits(&store).await[0].sequence, 5, "{named}");
            assert_eq!(metas(store.reader()).await.unwrap().len(), 1);
            let of = (&new.cluster_id, &new.node_id);
            let intake = intake_of(store.reader(), of.0, of.1).await.unwrap().unwrap();
            let sequences = (intake.acked_sequence, intake.highest_sequence);
            assert_eq!(sequences, (5, 5), "{named}");
            let ends = ends_of(store.reader(), of.0, of.1, 9).await.unwrap();
            assert_eq!(ends.len(), usize::from(ended), "{named}");
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_report_that_was_there_and_cannot_be_read_any_more_is_taken_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = damaged(&dir, ("waiting", "queued_at"), -1).await;
        let same = report(1, 4, 7);
        let what = mend(&store, std::iter::once(&same)).await.unwrap().unwrap();
        assert!(what.contains("is taken in again"), "{what}");
        assert!(commit(&store, std::slice::from_ref(&same)).await.unwrap()[0].accepted);
        let waits = waits(&store).await;
        assert_eq!((waits[0].sequence, waits[0].superseded_count), (4, 0));
        let of = (&same.cluster_id, &same.node_id);
        assert!(ends_of(store.reader(), of.0, of.1, 9).await.unwrap().is_empty());
        assert_eq!(depth(store.reader()).await.unwrap().waiting, 1);
    }
}
