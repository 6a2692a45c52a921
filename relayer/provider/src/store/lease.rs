use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPool;

use super::{Store, StoreError, Write};
use crate::db::{self, Conn, Held};

/// How long a lease holds without being renewed.
pub(crate) const HOLDS: Duration = Duration::from_millis(4_000);
/// The server's clock, UNIX milliseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// What one gateway at a time does: settlement, registrations, sweeps, prunes, events, anchors, alerts.
const DUTIES: &str = "duties";

/// Whose writes count: those of the holder of this number, as long as nobody has a later one.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    holder: Arc<str>,
    number: i64,
}

impl Fence {
    /// Refuses a transaction if another gateway has taken over; else none can before the transaction ends.
    pub(super) async fn holds(&self, conn: &mut Conn) -> Result<(), StoreError> {
        let row = db::query("SELECT name FROM lease WHERE name = ? AND holder = ? AND fence = ? FOR SHARE")
            .bind(DUTIES)
            .bind(&*self.holder)
            .bind(self.number)
            .fetch_optional(conn)
            .await?;
        row.map(drop).ok_or(StoreError::TakenOver)
    }
}

/// The duties and the sequences of signing keys, for this gateway alone.
#[derive(Debug)]
pub struct Lease {
    store: Store,
    pool: PgPool,
    fence: Fence,
    rows: u64,
}

impl Store {
    /// Takes the duties and these signing keys if nobody holds any of them; none if somebody does.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn lease(&self, holder: &str, accounts: &[String]) -> Result<Option<Lease>, StoreError> {
        let Write::Postgres { aside, .. } = &self.write else {
            return Ok(None);
        };
        let mut names = vec![DUTIES.to_owned()];
        names.extend(accounts.iter().map(|account| format!("key {account}")));
        names.sort();
        let mut turn = Turn::begin(aside).await?;
        let mut number = 0;
        for name in &names {
            match take(&mut turn.conn, holder, name).await? {
                Some(fence) if name == DUTIES => number = fence,
                Some(_) => {}
                // What was taken so far goes back.
                None => {
                    turn.end("ROLLBACK").await?;
                    return Ok(None);
                }
            }
        }
        turn.end("COMMIT").await?;
        let fence = Fence {
            holder: holder.into(),
            number,
        };
        Ok(Some(Lease {
            store: Self {
                fence: Some(fence.clone()),
                ..self.clone()
            },
            pool: aside.clone(),
            fence,
            rows: u64::try_from(names.len()).unwrap_or(u64::MAX),
        }))
    }
}

/// A transaction whose connection is closed if it does not come to its end: given up while the server is silent, it would keep
/// its place in the pool for as long as TCP goes on trying.
#[derive(Debug)]
struct Turn {
    conn: Held,
    ended: bool,
}

impl Turn {
    async fn begin(pool: &PgPool) -> Result<Self, StoreError> {
        let mut turn = Self {
            conn: Held::postgres(pool.acquire().await?),
            ended: false,
        };
        db::query("BEGIN").execute(&mut *turn.conn).await?;
        Ok(turn)
    }

    async fn end(mut self, by: &'static str) -> Result<(), StoreError> {
        db::query(by).execute(&mut *self.conn).await?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            self.conn.close_on_drop();
        }
    }
}

/// A row that somebody is just taking, renewing or writing under is not waited for: it is not free.
async fn take(conn: &mut Conn, holder: &str, name: &str) -> Result<Option<i64>, StoreError> {
    db::query(
        "INSERT INTO lease (name, holder, fence, expires_ms) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING",
    )
    .bind(name)
    .execute(&mut *conn)
    .await?;
    let row = db::query(format!(
        "UPDATE lease SET holder = ?1, fence = fence + 1, expires_ms = {NOW} + ?2 WHERE name IN
           (SELECT name FROM lease WHERE name = ?3 AND (expires_ms <= {NOW} OR holder = ?1) FOR UPDATE SKIP LOCKED)
         RETURNING fence"
    ))
    .bind(holder)
    .bind(holds_ms())
    .bind(name)
    .fetch_optional(conn)
    .await?;
    row.map(|row| Ok(row.try_get("fence")?)).transpose()
}

fn holds_ms() -> i64 {
    i64::try_from(HOLDS.as_millis()).unwrap_or(i64::MAX)
}

impl Lease {
    /// The store, which takes nothing any more once another gateway has taken over.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Goes on holding it; false: it is lost.
    ///
    /// # Errors
    /// If the store fails; it may be held still.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        let mut turn = Turn::begin(&self.pool).await?;
        let kept = db::query(format!(
            "UPDATE lease SET expires_ms = {NOW} + ?1 WHERE holder = ?2
               AND EXISTS (SELECT 1 FROM lease d WHERE d.name = ?3 AND d.holder = ?2 AND d.fence = ?4)"
        ))
        .bind(holds_ms())
        .bind(&*self.fence.holder)
        .bind(DUTIES)
        .bind(self.fence.number)
        .execute(&mut *turn.conn)
        .await?;
        turn.end("COMMIT").await?;
        Ok(kept.rows_affected() == self.rows)
    }

    /// Lets others have it at once.
    ///
    /// # Errors
    /// If the store fails; then it ends by itself.
    pub async fn give_up(&self) -> Result<(), StoreError> {
        let mut turn = Turn::begin(&self.pool).await?;
        db::query("UPDATE lease SET expires_ms = 0, holder = '' WHERE holder = ?")
            .bind(&*self.fence.holder)
            .execute(&mut *turn.conn)
            .await?;
        turn.end("COMMIT").await?;
        Ok(())
    }
}
