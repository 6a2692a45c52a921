use super::{Broken, Chain, Digest, Entry, Row};
use crate::db::{self, Conn, Pool};
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
    let before = read_head(
        &db::query("SELECT seq, digest FROM audit_head")
            .fetch_one(&mut *conn)
            .await?,
    )?;
    let row = Row {
        seq: before.seq + 1,
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
    let digest = row.digest_after(&before.digest);
    db::query(
        "INSERT INTO audit (seq, at, actor, role, via, action, target, result, detail, previous, digest)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(int(row.seq))
    .bind(int(row.at))
    .bind(&row.actor)
    .bind(&row.role)
    .bind(&row.via)
    .bind(&row.action)
    .bind(&row.target)
    .bind(&row.result)
    .bind(&row.detail)
    .bind(before.digest.as_slice())
    .bind(digest.as_slice())
    .execute(&mut *conn)
    .await?;
    db::query("UPDATE audit_head SET seq = ?, digest = ?")
        .bind(int(row.seq))
        .bind(digest.as_slice())
        .execute(conn)
        .await?;
    Ok(())
}

/// Where the log ends.
///
/// # Errors
/// If the store fails.
pub async fn head(pool: &Pool) -> Result<Head, StoreError> {
    read_head(
        &db::query("SELECT seq, digest FROM audit_head")
            .fetch_one(pool)
            .await?,
    )
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
