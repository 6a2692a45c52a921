use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{BUSY, Store, StoreError, Write};
use crate::db::{self, Held};

/// How often it is asked whether the account is free.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// An account that signs is this process's alone for as long as this is there.
#[derive(Debug)]
pub struct SigningTurn {
    /// The lock is its session's, which ends with it. None: no other gateway has the store.
    _session: Option<Held>,
}

impl Store {
    /// Waits until no other process of a shared store signs by an account that the gateways have in common, the operator's;
    /// none if that takes longer than `patience`. With a store of its own there is no other gateway to wait for.
    ///
    /// A session that breaks ends the turn early. Then two may want one sequence, of which the chain takes one.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn signing_turn(
        &self,
        account: &str,
        patience: Duration,
    ) -> Result<Option<SigningTurn>, StoreError> {
        let Write::Postgres { aside, .. } = &self.write else {
            return Ok(Some(SigningTurn { _session: None }));
        };
        let mut session = Held::postgres(aside.acquire().await?);
        session.close_on_drop();
        let (until, name) = (Instant::now() + patience, format!("sign {account}"));
        loop {
            let asked = db::query("SELECT pg_try_advisory_lock(hashtextextended(?, 0)) AS taken")
                .bind(&name)
                .fetch_one(&mut *session);
            // A server that has fallen silent never answers.
            let row = timeout(BUSY, asked)
                .await
                .unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
            if row.try_get::<bool, _>("taken")? {
                return Ok(Some(SigningTurn {
                    _session: Some(session),
                }));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            sleep(ASK_EVERY).await;
        }
    }
}
