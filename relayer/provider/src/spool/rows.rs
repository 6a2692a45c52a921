use std::sync::{LazyLock, Once};

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use crate::db::many::{self, Sized};
use crate::db::{self, Conn, Pool, Query, Row, Target};
use crate::prove::Which;
use crate::store::{StoreError, bytes, opt_uint, sequence, text, uint};

/// A signed report on its way to the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// Epoch that it was signed in.
    pub epoch: u64,
    /// Its sequence.
    pub sequence: u32,
    /// The 70 bytes that the agent signed.
    pub report: [u8; 70],
    /// The agent's signature.
    pub signature: [u8; 64],
    /// Since when a report of this node waits, UNIX milliseconds.
    pub queued_at: u64,
    /// When this one was received, UNIX milliseconds.
    pub received_at: u64,
    /// First sequence of the accepted reports that this one replaced.
    pub superseded_from: Option<u32>,
    /// How many those are.
    pub superseded_count: u64,
    /// Its end is on record already.
    pub recorded: bool,
    /// The rest of the heartbeat, if it is kept for proofs; only of one that waits.
    pub full: Option<Vec<u8>>,
}

impl Member {
    /// One of the tests' cluster.
    #[cfg(test)]
    pub(crate) fn of_node(node: &str, epoch: u64, sequence: u32) -> Self {
        Self {
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            node_id: node.parse().unwrap(),
            epoch,
            sequence,
            report: [1; 70],
            signature: [2; 64],
            queued_at: 1,
            received_at: 1,
            superseded_from: None,
            superseded_count: 0,
            recorded: false,
            full: None,
        }
    }

    /// The heartbeat that it is of.
    pub(super) fn which(&self) -> Which<'_> {
        Which {
            cluster: &self.cluster_id,
            node: &self.node_id,
            epoch: self.epoch,
            sequence: self.sequence,
        }
    }

    /// Whether what was signed could not be read any more: it may have come on chain, and cannot go again.
    pub(super) fn is_lost(&self) -> bool {
        self.report == [0; 70] || self.signature == [0; 64]
    }

    /// Whether it says which report it is; else it only keeps the place of its item.
    pub(crate) fn is_known(&self) -> bool {
        // 0 is none.
        self.epoch > 0
    }

    /// What can be read of one: of what only counts it or dates it, the rest is as if it had replaced none and had waited
    /// since it came; what was signed is zeros. None if it does not say which report it is; its sequence
    /// stands in what was signed as well.
    pub(super) fn left(row: &Row) -> Option<Self> {
        let (queued_at, received_at) = (uint(row, "queued_at").ok(), uint(row, "received_at").ok());
        let from = opt_uint(row, "superseded_from").ok().flatten();
        let report: [u8; 70] = bytes(row, "report").unwrap_or([0; 70]);
        let column = sequence(row, "sequence").ok();
        Some(Self {
            cluster_id: text(row, "cluster_id").ok()?,
            node_id: text(row, "node_id").ok()?,
            epoch: uint(row, "epoch").ok()?,
            sequence: column.or_else(|| signed_sequence(&report))?,
            report,
            signature: bytes(row, "signature").unwrap_or([0; 64]),
            queued_at: queued_at.or(received_at).unwrap_or(0),
            received_at: received_at.or(queued_at).unwrap_or(0),
            superseded_from: from.and_then(|n| u32::try_from(n).ok()),
            superseded_count: uint(row, "superseded_count").unwrap_or(0),
            recorded: row.try_get("recorded").unwrap_or(false),
            full: row.try_get("heartbeat").unwrap_or(None),
        })
    }

    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let from = opt_uint(row, "superseded_from")?
            .map(u32::try_from)
            .transpose()
            .map_err(|_| StoreError::Value {
                table: "waiting",
                column: "superseded_from",
            })?;
        Ok(Self {
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: uint(row, "epoch")?,
            sequence: sequence(row, "sequence")?,
            report: bytes(row, "report")?,
            signature: bytes(row, "signature")?,
            queued_at: uint(row, "queued_at")?,
            received_at: uint(row, "received_at")?,
            superseded_from: from,
            superseded_count: uint(row, "superseded_count")?,
            // Only a bound report can have ended and stay.
            recorded: row.try_get("recorded").unwrap_or(false),
            full: row.try_get("heartbeat").unwrap_or(None),
        })
    }
}

/// The sequence in what was signed: time u32 ‖ sequence u32 ‖ … ([`hpc_schema::report`]).
fn signed_sequence(report: &[u8; 70]) -> Option<u32> {
    let bytes = report.get(4..8)?.try_into().ok()?;
    // 0 is none.
    Some(u32::from_be_bytes(bytes)).filter(|sequence| *sequence > 0)
}

/// Rows of a table, as far as they can be read.
#[derive(Debug)]
pub struct Readable<T> {
    /// Those that can.
    pub rows: Vec<T>,
    /// Whether one cannot: [`super::Backlog::mend`].
    pub broken: bool,
}

impl<T> Readable<T> {
    /// The rows of a query, each as `read` makes it.
    pub(crate) async fn of(
        query: Query<'_>,
        on: impl Into<Target<'_>>,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut all = Self::default();
        all.take(query, on, read).await?;
        Ok(all)
    }

    async fn take(
        &mut self,
        query: Query<'_>,
        on: impl Into<Target<'_>>,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<(), StoreError> {
        let take = |row: &Row| {
            match read(row) {
                Ok(one) => self.rows.push(one),
                // One that names no node cannot be written anew.
                Err(e) if e.is_unreadable() => self.broken |= key(row).is_ok(),
                Err(e) => return Err(e),
            }
            Ok(())
        };
        query.fetch_each(on, take).await
    }
}

impl<T> Default for Readable<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            broken: false,
        }
    }
}

/// The column of a row that cannot be read, if one cannot.
pub(super) fn unreadable<T>(read: Result<T, StoreError>) -> Result<Option<String>, StoreError> {
    let Err(e) = read else { return Ok(None) };
    match e.column().map(str::to_owned) {
        Some(column) => Ok(Some(column)),
        None => Err(e),
    }
}

/// Cluster and node of a row as they stand there.
pub(super) fn key(row: &Row) -> Result<(String, String), StoreError> {
    Ok((row.try_get("cluster_id")?, row.try_get("node_id")?))
}

/// What the planner needs of a waiting report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// Epoch.
    pub epoch: u64,
    /// Sequence.
    pub sequence: u32,
    /// Since when a report of this node waits, UNIX milliseconds.
    pub queued_at: u64,
    /// The report's own time, UNIX seconds.
    pub time: u32,
    /// Bytes of the second section that would travel with it; 0 if none is kept.
    pub section_len: u32,
    /// Digest of that section.
    pub section_digest: Option<[u8; 16]>,
}

/// Every waiting report that can be read, in order of cluster and node.
///
/// # Errors
/// If the store fails.
pub async fn metas(pool: &Pool) -> Result<Readable<Meta>, StoreError> {
    let query = db::query(
        "SELECT w.cluster_id, w.node_id, w.epoch, w.sequence, w.queued_at, substr(w.report, 1, 4) AS time,
                length(i.section) AS section_len, i.section_digest
         FROM waiting w JOIN intake i ON i.cluster_id = w.cluster_id AND i.node_id = w.node_id
         ORDER BY w.cluster_id, w.node_id",
    );
    Readable::of(query, pool, |row| {
        // Without it the section travels with the report.
        let digest: Option<Vec<u8>> = row.try_get("section_digest").unwrap_or(None);
        Ok(Meta {
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: uint(row, "epoch")?,
            sequence: sequence(row, "sequence")?,
            queued_at: uint(row, "queued_at")?,
            time: u32::from_be_bytes(bytes(row, "time")?),
            section_len: opt_uint(row, "section_len")?
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            section_digest: digest.and_then(|d| d.try_into().ok()),
        })
    })
    .await
}

/// How much waits, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Reports in the queue.
    pub waiting: u64,
    /// Reports in transactions that have not ended.
    pub bound: u64,
    /// Since when the oldest of both waits, UNIX milliseconds.
    pub oldest: Option<u64>,
}

/// How much waits, and since when.
///
/// # Errors
/// If the store fails.
pub async fn depth(pool: &Pool) -> Result<Depth, StoreError> {
    let row = db::query(
        "SELECT (SELECT count(*) FROM waiting) AS waiting, (SELECT count(*) FROM batch_report) AS bound,
                (SELECT min(q) FROM (SELECT min(queued_at) AS q FROM waiting WHERE queued_at >= 0
                  UNION ALL SELECT min(queued_at) FROM batch_report WHERE queued_at >= 0) AS queues) AS oldest",
    )
    .fetch_one(pool)
    .await?;
    Ok(Depth {
        waiting: uint(&row, "waiting")?,
        bound: uint(&row, "bound")?,
        oldest: opt_uint(&row, "oldest")?,
    })
}

static WAITING_OF: LazyLock<Vec<Sized>> = LazyLock::new(|| {
    many::sized(|rows| {
        format!(
            "SELECT w.*, i.section FROM waiting w
             JOIN intake i ON i.cluster_id = w.cluster_id AND i.node_id = w.node_id
             WHERE {}",
            many::joined(rows, "(w.cluster_id = ? AND w.node_id = ?)", " OR ")
        )
    })
});

/// The waiting reports of these nodes that can be read, each with the section that is kept; of a node that none waits of there
/// is none.
///
/// # Errors
/// If the store fails.
pub async fn waiting_of(
    conn: &mut Conn,
    nodes: &[(&ClusterId, &NodeId)],
) -> Result<Readable<(Member, Option<Vec<u8>>)>, StoreError> {
    let read = |row: &Row| Ok((Member::read(row)?, row.try_get("section").unwrap_or(None)));
    let mut all = Readable::default();
    for (some, statement) in many::split(nodes, &WAITING_OF) {
        let mut query = db::query(statement);
        for (cluster, node) in some {
            query = query.bind(cluster.as_str()).bind(node.as_str());
        }
        all.take(query, &mut *conn, read).await?;
    }
    Ok(all)
}

/// What has been accepted of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intake {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// Epoch of the newest accepted report.
    pub epoch: u64,
    /// Highest sequence accepted in that epoch.
    pub acked_sequence: u32,
    /// Highest sequence accepted in any epoch.
    pub highest_sequence: u32,
    /// When the newest was received, UNIX milliseconds.
    pub received_at: u64,
    /// What an accepted report was last refused with, and its sequence.
    pub refusal: Option<(Code, u32)>,
}

impl Intake {
    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        let code = opt_uint(row, "refusal_code")?
            .and_then(|n| u8::try_from(n).ok())
            .and_then(Code::from_number);
        let of = opt_uint(row, "refusal_sequence")?.and_then(|n| u32::try_from(n).ok());
        Ok(Self {
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: uint(row, "epoch")?,
            acked_sequence: sequence(row, "acked_sequence")?,
            highest_sequence: sequence(row, "highest_sequence")?,
            received_at: uint(row, "received_at")?,
            refusal: code.zip(of),
        })
    }
}

/// Every row of `intake`, without what is large.
pub(super) const INTAKES: &str =
    "SELECT cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at,
    refusal_code, refusal_sequence FROM intake";

/// What has been accepted of every node. A row that cannot be read is passed over, as if nothing had been; the node's next
/// report has it written anew.
///
/// # Errors
/// If the store fails.
pub async fn intakes(pool: &Pool) -> Result<Vec<Intake>, StoreError> {
    // Gateways that share a store ask again and again.
    static TOLD: Once = Once::new();
    let all = Readable::of(db::query(INTAKES), pool, Intake::read).await?;
    if all.broken {
        TOLD.call_once(|| {
            tracing::error!(
                "a row of intake cannot be read and is passed over until its node reports; look at the disk"
            );
        });
    }
    Ok(all.rows)
}

/// What has been accepted of one node.
///
/// # Errors
/// If the store fails.
pub async fn intake_of(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Option<Intake>, StoreError> {
    let row = db::query("SELECT * FROM intake WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_optional(pool)
        .await?;
    row.as_ref().map(Intake::read).transpose()
}
