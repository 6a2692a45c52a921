//! A whole group in few statements, for the case that all its reports are news, which is nearly every group.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::accept::{Accept, Accepted};
use crate::db::{self, Query, Transaction};
use crate::store::{Store, StoreError, int};

/// Rows of one statement, rising: each way to the database's thread and back counts, more so where that thread has to wait
/// for a CPU, and few statements are prepared. A group of up to [`FIRST`] goes with the beginning of its transaction; of a
/// larger one what is left over by the sizes beyond does.
const SIZES: [usize; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64];
const FIRST: usize = 16;

/// The statements for so many rows.
struct Sized {
    rows: usize,
    intake: String,
    waiting: String,
}

static STATEMENTS: LazyLock<Vec<Sized>> = LazyLock::new(|| SIZES.into_iter().map(sized).collect());

fn sized(rows: usize) -> Sized {
    let values = |row: &str| vec![row; rows].join(", ");
    // Like `accept`: a sequence must be above the acknowledged one of its epoch.
    let intake = format!(
        "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at, section, section_digest)
         VALUES {}
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET
           epoch = excluded.epoch, acked_sequence = excluded.acked_sequence,
           highest_sequence = CASE WHEN excluded.highest_sequence > intake.highest_sequence
             THEN excluded.highest_sequence ELSE intake.highest_sequence END,
           received_at = excluded.received_at, section = excluded.section, section_digest = excluded.section_digest
         WHERE excluded.epoch > intake.epoch
            OR (excluded.epoch = intake.epoch AND excluded.acked_sequence > intake.acked_sequence)",
        values("(?, ?, ?, ?, ?, ?, ?, ?)")
    );
    // Like `enqueue`: the newest wins, those before it are counted. One of another epoch is not for here, nor one that
    // cannot be read: settlement reads all that wait.
    let waiting = format!(
        "INSERT INTO waiting (cluster_id, node_id, epoch, sequence, report, signature, queued_at, received_at, superseded_from, superseded_count, heartbeat)
         VALUES {}
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET
           superseded_from = coalesce(waiting.superseded_from, waiting.sequence),
           superseded_count = waiting.superseded_count + 1 + excluded.superseded_count,
           sequence = excluded.sequence, report = excluded.report, signature = excluded.signature,
           received_at = excluded.received_at, heartbeat = excluded.heartbeat
         WHERE waiting.epoch = excluded.epoch AND waiting.superseded_count >= 0 AND waiting.queued_at >= 0
           AND coalesce(waiting.superseded_from, waiting.sequence) BETWEEN 0 AND 4294967295",
        values("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
    );
    Sized {
        rows,
        intake,
        waiting,
    }
}

/// Takes all of these in, in a transaction that is rolled back and gives nothing if they are not one for each node or not
/// all of them are news; then each has to be looked at.
pub(super) async fn accept_all(
    store: &Store,
    reports: &[&Accept],
) -> Result<Option<(Transaction, Vec<Accepted>)>, StoreError> {
    let nodes: HashSet<_> = reports.iter().map(|r| (&r.cluster_id, &r.node_id)).collect();
    if nodes.len() < reports.len() {
        return Ok(None);
    }
    // In the order of the tables, so that neighbours share pages.
    let mut ordered: Vec<&Accept> = reports.to_vec();
    ordered.sort_unstable_by(|a, b| (&a.cluster_id, &a.node_id).cmp(&(&b.cluster_id, &b.node_id)));
    // 1 to FIRST of them.
    let beginning = ordered.len().saturating_sub(1) % FIRST + 1;
    let Some((now, mut rest)) = ordered.split_at_checked(beginning) else {
        return Ok(None);
    };
    let Some(statements) = fitting(now.len()) else {
        return Ok(None);
    };
    let (mut tx, changed) = store.begin_intake(put_in(statements, now)).await?;
    let mut all_news = all(&changed, now.len());
    while all_news && let Some(statements) = fitting(rest.len()) {
        let (now, later) = rest.split_at(statements.rows);
        let changed = tx.change_together(put_in(statements, now)).await?;
        all_news = all(&changed, now.len());
        rest = later;
    }
    if !all_news {
        tx.rollback().await?;
        return Ok(None);
    }
    let answers = reports.iter().map(|r| Accepted {
        accepted: true,
        sequence_ack: r.sequence,
    });
    Ok(Some((tx, answers.collect())))
}

/// The largest statements of at most so many rows.
fn fitting(rows: usize) -> Option<&'static Sized> {
    STATEMENTS.iter().rfind(|s| s.rows <= rows)
}

/// Whether both statements changed a row for each report: all of them were news.
fn all(changed: &[u64], reports: usize) -> bool {
    u64::try_from(reports).is_ok_and(|n| changed == [n, n])
}

fn put_in<'q>(statements: &'static Sized, reports: &[&'q Accept]) -> Vec<Query<'q>> {
    let mut intake = db::query(statements.intake.as_str());
    let mut waiting = db::query(statements.waiting.as_str());
    for r in reports {
        intake = intake
            .bind(r.cluster_id.as_str())
            .bind(r.node_id.as_str())
            .bind(int(r.epoch))
            .bind(i64::from(r.sequence))
            .bind(i64::from(r.sequence))
            .bind(int(r.received_at))
            .bind(r.section.as_slice())
            .bind(r.section_digest.as_slice());
        waiting = waiting
            .bind(r.cluster_id.as_str())
            .bind(r.node_id.as_str())
            .bind(int(r.epoch))
            .bind(i64::from(r.sequence))
            .bind(r.report.as_slice())
            .bind(r.signature.as_slice())
            .bind(int(r.queued_at))
            .bind(int(r.received_at))
            .bind(r.superseded_from.map(i64::from))
            .bind(int(r.superseded_count))
            .bind(r.full.as_deref());
    }
    vec![intake, waiting]
}
