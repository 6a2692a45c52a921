use super::{Broken, Chain, Digest, Entry, Row};
use crate::db::{self, Conn, Pool, Query};
use crate::store::{StoreError, bytes, int, uint};

/// Rows that are read at once.
pub const MAX_PAGE: u32 = 1000;

/// The newest row.
pub type Head = Chain;

/// Appends one row, in the transaction of the act.
///
/// # Errors
/// If the store fails.
pub async fn append(conn: &mut Conn, entry: &Entry) -> Result<(), StoreError> {
    let head = told_head(&ask_head().fetch_all(&mut *conn).await?)?;
    conn.together(after(head, std::slice::from_ref(entry))).await?;
    Ok(())
}

/// Asks where the log ends, in the transaction that is going to append.
pub fn ask_head() -> Query<'static> {
    db::query("SELECT seq, digest FROM audit_head")
}

/// What [`ask_head`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_head(rows: &[db::Row]) -> Result<Head, StoreError> {
    read_head(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

/// What appends rows to a log that ends so, in the transaction that has asked.
#[must_use]
pub fn after(mut head: Head, entries: &[Entry]) -> Vec<Query<'static>> {
    let mut queries = Vec::with_capacity(entries.len() + 1);
    for entry in entries {
        let row = Row {
            seq: head.seq + 1,
            at: entry.at,
            actor: entry.by.name.clone(),
            role: entry.by.role.as_str().to_owned(),
            via: entry.by.via.as_str().to_owned(),
            action: entry.action.to_owned(),
            target: entry.target.clone(),
            result: entry.result.to_owned(),
            detail: entry.detail.to_string(),
            previous: String::new(),
            digest: String::new(),
        };
        let next = Head {
            seq: row.seq,
            digest: row.digest_after(&head.digest),
        };
        queries.push(insert(row, &head.digest, &next.digest));
        head = next;
    }
    if !entries.is_empty() {
        let moved = db::query("UPDATE audit_head SET seq = ?, digest = ?");
        queries.push(moved.bind(int(head.seq)).bind(head.digest.to_vec()));
    }
    queries
}

fn insert(row: Row, previous: &Digest, digest: &Digest) -> Query<'static> {
    db::query(
        "INSERT INTO audit (seq, at, actor, role, via, action, target, result, detail, previous, digest)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(int(row.seq))
    .bind(int(row.at))
    .bind(row.actor)
    .bind(row.role)
    .bind(row.via)
    .bind(row.action)
    .bind(row.target)
    .bind(row.result)
    .bind(row.detail)
    .bind(previous.to_vec())
    .bind(digest.to_vec())
}

/// Where the log ends.
///
/// # Errors
/// If the store fails.
pub async fn head(pool: &Pool) -> Result<Head, StoreError> {
    told_head(&ask_head().fetch_all(pool).await?)
}

fn read_head(row: &db::Row) -> Result<Head, StoreError> {
    Ok(Head {
        seq: uint(row, "seq")?,
        digest: bytes(row, "digest")?,
    })
}

/// The newest `limit` rows, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn newest(pool: &Pool, limit: u32) -> Result<Vec<Row>, StoreError> {
    let after = head(pool).await?.seq.saturating_sub(u64::from(limit));
    page(pool, after, limit).await
}

/// Up to `limit` rows after the one of this number, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn page(pool: &Pool, after: u64, limit: u32) -> Result<Vec<Row>, StoreError> {
    let rows = db::query("SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?")
        .bind(int(after))
        .bind(i64::from(limit.min(MAX_PAGE + 1)))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let digest = |column| -> Result<String, StoreError> {
                Ok(hex::encode(bytes::<{ size_of::<Digest>() }>(row, column)?))
            };
            Ok(Row {
                seq: uint(row, "seq")?,
                at: uint(row, "at")?,
                actor: row.try_get("actor")?,
                role: row.try_get("role")?,
                via: row.try_get("via")?,
                action: row.try_get("action")?,
                target: row.try_get("target")?,
                result: row.try_get("result")?,
                detail: row.try_get("detail")?,
                previous: digest("previous")?,
                digest: digest("digest")?,
            })
        })
        .collect()
}

/// Number of the newest row of this act on this target; none if there is none.
///
/// # Errors
/// If the store fails.
pub async fn newest_of(pool: &Pool, action: &str, target: &str) -> Result<Option<u64>, StoreError> {
    let row = db::query("SELECT seq FROM audit WHERE action = ? AND target = ? ORDER BY seq DESC LIMIT 1")
        .bind(action)
        .bind(target)
        .fetch_optional(pool)
        .await?;
    row.map(|row| uint(&row, "seq")).transpose()
}

/// Follows the whole log up to its head, calling `seen` with each row that is right.
///
/// # Errors
/// If the store fails; inside: where the log is broken.
pub async fn verify(pool: &Pool, mut seen: impl FnMut(&Row)) -> Result<Result<Chain, Broken>, StoreError> {
    // Read first: rows that are appended meanwhile stand after it.
    let head = head(pool).await?;
    let mut chain = Chain::default();
    loop {
        let rows = page(pool, chain.seq, MAX_PAGE).await?;
        for row in &rows {
            if let Err(broken) = chain.follow(row) {
                return Ok(Err(broken));
            }
            if chain.seq == head.seq && chain.digest != head.digest {
                return Ok(Err(Broken::Altered { seq: chain.seq }));
            }
            seen(row);
        }
        if rows.is_empty() {
            break;
        }
    }
    // Read again: nothing may stand after it that was not appended with it.
    let end = self::head(pool).await?;
    if chain.seq < head.seq || chain.seq > end.seq {
        return Ok(Err(Broken::End {
            found: chain.seq,
            head: end.seq,
        }));
    }
    Ok(Ok(chain))
}
