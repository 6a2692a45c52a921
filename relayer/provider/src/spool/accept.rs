use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use super::history::{self, End, EndedAs};
use super::rows::Member;
use crate::db::{self, Conn};
use crate::store::{StoreError, int, sequence};

/// A verified report that wants to be on disk.
#[derive(Debug, Clone)]
pub struct Accept {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// The node's present epoch.
    pub epoch: u64,
    /// Its sequence.
    pub sequence: u32,
    /// The 70 signed bytes.
    pub report: [u8; 70],
    /// The agent's signature over them.
    pub signature: [u8; 64],
    /// The second section.
    pub section: Vec<u8>,
    /// Its digest.
    pub section_digest: [u8; 16],
    /// UNIX milliseconds.
    pub received_at: u64,
    /// The rest of the heartbeat ([`fn@crate::prove::full`]), if it is kept for proofs.
    pub full: Option<Vec<u8>>,
    /// Since when a report of this node waits, UNIX milliseconds.
    pub queued_at: u64,
    /// First sequence of the accepted reports that this one has replaced before the database had them.
    pub superseded_from: Option<u32>,
    /// How many those are.
    pub superseded_count: u64,
}

impl Accept {
    /// A report that has just come and replaces none: its node, its epoch and sequence, its 70 bytes with their signature,
    /// and when it came (UNIX milliseconds); without section and full heartbeat.
    #[must_use]
    pub fn new(
        (cluster_id, node_id): (ClusterId, NodeId),
        (epoch, sequence): (u64, u32),
        (report, signature): ([u8; 70], [u8; 64]),
        received_at: u64,
    ) -> Self {
        Self {
            cluster_id,
            node_id,
            epoch,
            sequence,
            report,
            signature,
            section: Vec::new(),
            section_digest: [0; 16],
            received_at,
            full: None,
            queued_at: received_at,
            superseded_from: None,
            superseded_count: 0,
        }
    }

    /// As one of the queue.
    pub(super) fn member(&self) -> Member {
        Member {
            cluster_id: self.cluster_id.clone(),
            node_id: self.node_id.clone(),
            epoch: self.epoch,
            sequence: self.sequence,
            report: self.report,
            signature: self.signature,
            queued_at: self.queued_at,
            received_at: self.received_at,
            superseded_from: self.superseded_from,
            superseded_count: self.superseded_count,
            recorded: false,
            full: self.full.clone(),
        }
    }
}

/// The writer's answer, given after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Whether the report is in the queue; false: its sequence is not above the acknowledged one.
    pub accepted: bool,
    /// The highest sequence durably accepted.
    pub sequence_ack: u32,
}

/// Takes one report in: the sequence must be above the acknowledged one of its epoch; a report of the
/// node that still waits is replaced.
pub(super) async fn accept(conn: &mut Conn, new: &Accept) -> Result<Accepted, StoreError> {
    let (cluster, node) = (new.cluster_id.as_str(), new.node_id.as_str());
    let updated = db::query(
        "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at)
         VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET
           epoch = excluded.epoch, acked_sequence = excluded.acked_sequence,
           highest_sequence = CASE WHEN excluded.highest_sequence > intake.highest_sequence
             THEN excluded.highest_sequence ELSE intake.highest_sequence END,
           received_at = excluded.received_at
         WHERE excluded.epoch > intake.epoch
            OR (excluded.epoch = intake.epoch AND excluded.acked_sequence > intake.acked_sequence)",
    )
    .bind(cluster)
    .bind(node)
    .bind(int(new.epoch))
    .bind(i64::from(new.sequence))
    .bind(i64::from(new.sequence))
    .bind(int(new.received_at))
    .execute(&mut *conn)
    .await?;
    if updated.rows_affected() == 0 {
        let row = db::query("SELECT acked_sequence FROM intake WHERE cluster_id = ? AND node_id = ?")
            .bind(cluster)
            .bind(node)
            .fetch_one(conn)
            .await?;
        return Ok(Accepted {
            accepted: false,
            sequence_ack: sequence(&row, "acked_sequence")?,
        });
    }
    db::query(
        "UPDATE intake SET section = ?, section_digest = ?
         WHERE cluster_id = ? AND node_id = ? AND section_digest IS DISTINCT FROM ?",
    )
    .bind(&new.section)
    .bind(new.section_digest.as_slice())
    .bind(cluster)
    .bind(node)
    .bind(new.section_digest.as_slice())
    .execute(&mut *conn)
    .await?;
    enqueue(conn, new).await?;
    Ok(Accepted {
        accepted: true,
        sequence_ack: new.sequence,
    })
}

async fn enqueue(conn: &mut Conn, new: &Accept) -> Result<(), StoreError> {
    let (cluster, node) = (new.cluster_id.as_str(), new.node_id.as_str());
    let before = db::query("SELECT * FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster)
        .bind(node)
        .fetch_optional(&mut *conn)
        .await?;
    let before = before.as_ref().map(Member::read).transpose()?;
    let (mut queued_at, mut from, mut count) = (new.queued_at, new.superseded_from, new.superseded_count);
    if let Some(before) = before {
        if before.epoch == new.epoch {
            queued_at = before.queued_at;
            from = Some(before.superseded_from.unwrap_or(before.sequence));
            count = count.saturating_add(before.superseded_count.saturating_add(1));
        } else {
            history::end(
                conn,
                &before,
                &End::local(EndedAs::Superseded, Some(Code::SupersededByRotation)),
                new.received_at,
            )
            .await?;
        }
    }
    db::query(
        "INSERT INTO waiting (cluster_id, node_id, epoch, sequence, report, signature, queued_at,
         received_at, superseded_from, superseded_count, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence,
           report = excluded.report, signature = excluded.signature, queued_at = excluded.queued_at,
           received_at = excluded.received_at, superseded_from = excluded.superseded_from,
           superseded_count = excluded.superseded_count, heartbeat = excluded.heartbeat",
    )
    .bind(cluster)
    .bind(node)
    .bind(int(new.epoch))
    .bind(i64::from(new.sequence))
    .bind(new.report.as_slice())
    .bind(new.signature.as_slice())
    .bind(int(queued_at))
    .bind(int(new.received_at))
    .bind(from.map(i64::from))
    .bind(int(count))
    .bind(new.full.as_deref())
    .execute(conn)
    .await?;
    Ok(())
}
