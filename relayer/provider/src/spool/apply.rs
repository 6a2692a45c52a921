//! What the journal holds goes into the database, the newest of each node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hpc_schema::code::Code;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::accept::{Accept, accept};
use super::bind::members;
use super::group::Made;
use super::history::{self, End, EndedAs};
use super::journal::Applied;
use super::mend::{mend, mend_all};
use super::pending::Pending;
use super::rows::Member;
use super::together::accept_all;
use crate::db::{self, Conn, Query};
use crate::fault;
use crate::settle::Wake;
use crate::store::{Store, StoreError, int, uint};

/// A node's report waits so long for each node that waits, at most [`LONGEST`]: what comes meanwhile of the same node
/// replaces it.
const EACH: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_secs(1);
/// With so many nodes nobody waits.
const MANY: usize = 2048;
/// Between two transactions: a commit costs more than a few reports.
const BETWEEN: Duration = Duration::from_millis(20);
/// About so many nodes in one: others need the CPU in between. More where it is urgent.
const SLICE: usize = 16;
const URGENT_SLICE: usize = 512;
/// The database takes nothing in for so long: then it is better that nodes hear of it.
const STUCK: Duration = Duration::from_secs(60);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// For so long it is said that a row could not be read.
const SAID_FOR: Duration = Duration::from_secs(24 * 3600);

/// Between the writer of the journal and who takes in what it holds.
#[derive(Debug, Default)]
pub(super) struct Handover {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    pending: Pending,
    /// Since when the first of those waits that a transaction has.
    taking: Option<Instant>,
    /// The newest group whose reports are there.
    newest: u64,
    /// The journal is getting full.
    pressed: bool,
    /// Nothing more comes.
    ended: bool,
    /// The last row that could not be read, and when it was written anew.
    mended: Option<(Instant, String)>,
}

impl Handover {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reports of a group that is on disk; `pressed` if the journal is getting full.
    pub(super) fn add(&self, number: u64, pressed: bool, reports: impl Iterator<Item = Made>) {
        let (mut inner, now) = (self.inner(), Instant::now());
        let idle = inner.pending.len() == 0;
        for report in reports {
            inner.pending.add(number, report, now);
        }
        (inner.newest, inner.pressed) = (number, pressed);
        let urgent = inner.urgent();
        drop(inner);
        if idle || urgent {
            self.news.notify_one();
        }
    }

    /// For how long what was accepted is not in the database yet.
    pub(super) fn behind(&self) -> Duration {
        let mut inner = self.inner();
        let first = inner.taking.or_else(|| inner.pending.first());
        first.map_or(Duration::ZERO, |first| first.elapsed())
    }

    /// Whether that is long.
    pub(super) fn is_stuck(&self) -> bool {
        self.behind() > STUCK
    }

    /// A row could not be read and was written anew.
    pub(super) fn mended(&self, what: String) {
        self.inner().mended = Some((Instant::now(), what));
    }

    /// The last such of a day.
    pub(super) fn last_mended(&self) -> Option<String> {
        let inner = self.inner();
        let (at, what) = inner.mended.as_ref()?;
        (at.elapsed() < SAID_FOR).then(|| what.clone())
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.inner().ended = true;
        self.news.notify_one();
    }

    /// When something should be taken in; none: nothing is there. And whether nothing more comes.
    fn due(&self) -> (Option<Instant>, bool) {
        let mut inner = self.inner();
        let age = inner.age();
        (inner.pending.first().map(|first| first + age), inner.ended)
    }
}

impl Inner {
    /// Nobody waits for others of its node.
    fn urgent(&self) -> bool {
        self.ended || self.pressed || self.pending.len() >= MANY
    }

    fn age(&self) -> Duration {
        if self.urgent() {
            return Duration::ZERO;
        }
        let waiting = u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        EACH.saturating_mul(waiting).min(LONGEST)
    }
}

/// Tells how far the database is behind what was accepted, and is told of rows that settlement cannot read. The writer does
/// not wait for who has it.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<Handover>);

impl Backlog {
    pub(super) fn of(handover: &Arc<Handover>) -> Self {
        Self(Arc::clone(handover))
    }

    /// For how long the database has not taken in what the journal holds.
    #[must_use]
    pub fn behind(&self) -> Duration {
        self.0.behind()
    }

    /// Rows of whatever node that cannot be read are written anew, as far as can be, which is told as such.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn mend(&self, store: &Store) -> Result<(), StoreError> {
        if let Some(what) = mend_all(store).await? {
            self.0.mended(what);
        }
        Ok(())
    }

    /// The reports of a transaction that has not been settled, in the order of its items; rows that cannot be read are
    /// written anew before.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn members(&self, store: &Store, batch: u64) -> Result<Vec<Member>, StoreError> {
        match bound(store, batch).await {
            Err(e) if e.is_unreadable() => {
                self.mend(store).await?;
                bound(store, batch).await
            }
            read => read,
        }
    }
}

async fn bound(store: &Store, batch: u64) -> Result<Vec<Member>, StoreError> {
    let mut conn = store.reader().acquire().await?;
    members(&mut conn, batch).await
}

/// Takes in what comes until nothing more does.
pub(super) async fn apply(store: Store, handover: Arc<Handover>, applied: Applied, wake: Arc<Wake>) {
    loop {
        match handover.due() {
            (None, true) => return,
            (None, false) => {
                handover.news.notified().await;
                continue;
            }
            (Some(at), _) if at > Instant::now() => {
                // Its time, or it has become urgent.
                drop(timeout_at(at, handover.news.notified()).await);
                continue;
            }
            (Some(_), _) => {}
        }
        let (taken, upto, ended) = {
            let mut inner = handover.inner();
            let before = Instant::now()
                .checked_sub(inner.age())
                .unwrap_or_else(Instant::now);
            let most = if inner.urgent() { URGENT_SLICE } else { SLICE };
            inner.taking = inner.pending.first();
            let taken = inner.pending.take(before, most);
            let upto = taken.upto.unwrap_or(inner.newest);
            (taken, upto, inner.ended)
        };
        let rounds = taken.rounds();
        let reports = rounds.iter().map(Vec::len).sum();
        let mut done = take_in_mended(&store, &rounds, upto, &handover).await;
        if done.is_err() && noted(store.reader()).await.is_ok_and(|noted| noted >= upto) {
            // The answer alone was lost.
            done = Ok(());
        }
        handover.inner().taking = None;
        match done {
            Ok(()) => {
                applied.set(upto);
                store.took_in(reports);
                wake.reports(reports);
                if !ended {
                    sleep(BETWEEN).await;
                }
            }
            Err(e) => {
                tracing::error!(error = %e, reports, "the store does not take in what was accepted; it stays in the journal and is tried again");
                handover.inner().pending.put_back(taken);
                if ended {
                    // The next start does it.
                    return;
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Like [`take_in`]; what cannot be read of one node is written anew, and keeps nobody else's out.
///
/// # Errors
/// If the store fails.
async fn take_in_mended(
    store: &Store,
    rounds: &[Vec<&Accept>],
    number: u64,
    handover: &Handover,
) -> Result<(), StoreError> {
    let done = take_in(store, rounds, number).await;
    if !done.as_ref().is_err_and(StoreError::is_unreadable) {
        return done;
    }
    let Some(what) = mend(store, rounds.iter().flatten().copied(), true).await? else {
        return done;
    };
    handover.mended(what);
    take_in(store, rounds, number).await
}

/// Takes in reports, and notes that the database holds every group up to `number`: both or neither.
///
/// # Errors
/// If the store fails.
async fn take_in(store: &Store, rounds: &[Vec<&Accept>], number: u64) -> Result<(), StoreError> {
    if let [round] = rounds
        && let Some((tx, _)) = accept_all(store, round).await?
    {
        fault::point("spool.applying");
        tx.commit_together(vec![note(number)]).await?;
        fault::point("spool.applied");
        return Ok(());
    }
    one_by_one(store, rounds.iter().flatten().copied(), number).await
}

/// The same of reports as they came, of which the database may hold some: those change nothing.
///
/// # Errors
/// If the store fails.
pub(super) async fn one_by_one(
    store: &Store,
    reports: impl Iterator<Item = &Accept>,
    number: u64,
) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    for report in reports {
        if !accept(&mut tx, report).await?.accepted {
            end_if_lost(&mut tx, report).await?;
        }
    }
    fault::point("spool.applying");
    tx.commit_together(vec![note(number)]).await?;
    fault::point("spool.applied");
    Ok(())
}

/// A report that did not come before a newer registration of its node ends on record.
async fn end_if_lost(conn: &mut Conn, report: &Accept) -> Result<(), StoreError> {
    let lost = db::query(
        "SELECT epoch FROM intake i WHERE cluster_id = ?1 AND node_id = ?2 AND epoch > ?3
         AND NOT EXISTS (SELECT 1 FROM report_end
           WHERE cluster_id = ?1 AND node_id = ?2 AND epoch = ?3 AND sequence >= ?4)
         AND NOT EXISTS (SELECT 1 FROM batch_report
           WHERE cluster_id = ?1 AND node_id = ?2 AND epoch = ?3 AND sequence >= ?4)
         AND NOT EXISTS (SELECT 1 FROM waiting
           WHERE cluster_id = ?1 AND node_id = ?2 AND epoch = ?3 AND sequence >= ?4)",
    )
    .bind(report.cluster_id.as_str())
    .bind(report.node_id.as_str())
    .bind(int(report.epoch))
    .bind(i64::from(report.sequence))
    .fetch_optional(&mut *conn)
    .await?;
    if lost.is_some() {
        let end = End::local(EndedAs::Superseded, Some(Code::SupersededByRotation));
        history::end(conn, &report.member(), &end, report.received_at).await?;
    }
    Ok(())
}

fn note(number: u64) -> Query<'static> {
    db::query(
        "INSERT INTO intake_journal (id, applied) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET applied = excluded.applied",
    )
    .bind(int(number))
}

/// The newest group that the database holds, with all before it.
///
/// # Errors
/// If the store fails.
pub(super) async fn noted(pool: &db::Pool) -> Result<u64, StoreError> {
    let row = db::query("SELECT applied FROM intake_journal")
        .fetch_optional(pool)
        .await?;
    row.map_or(Ok(0), |row| uint(&row, "applied"))
}

#[cfg(test)]
impl Backlog {
    /// Of a database that has taken in nothing for so long.
    pub(crate) fn stuck_for(time: Duration) -> Self {
        let handover = Handover::default();
        handover.inner().taking = Instant::now().checked_sub(time);
        Self(Arc::new(handover))
    }
}
