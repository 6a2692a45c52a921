use hpc_chain::settle::BatchId;

use super::super::store::{self, SignedRow};
use crate::db::Conn;
use crate::enrol;
use crate::spool::{self, Member};
use crate::store::StoreError;

/// A signed transaction and what is in it, until both are stored.
#[derive(Debug)]
pub(in crate::settle) struct Bound {
    pub(in crate::settle) batch: BatchId,
    pub(in crate::settle) row: SignedRow,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Reports(Vec<Member>),
    Register(Vec<u64>),
    Upkeep,
}

impl Bound {
    /// False if something of it was called back while it was signed: then the caller commits nothing.
    pub(in crate::settle) async fn write(&self, conn: &mut Conn, now_ms: u64) -> Result<bool, StoreError> {
        store::record_signed(&mut *conn, self.batch, &self.row).await?;
        match &self.content {
            Content::Reports(members) => spool::bind(conn, self.batch.0, members).await?,
            Content::Register(ids) => return enrol::bind_to_batch(conn, self.batch.0, ids, now_ms).await,
            Content::Upkeep => {}
        }
        Ok(true)
    }

    pub(in crate::settle) fn items(&self) -> usize {
        match &self.content {
            Content::Reports(members) => members.len(),
            Content::Register(ids) => ids.len(),
            Content::Upkeep => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use hpc_chain::hash::TxHash;
    use hpc_chain::settle::{Action, EndpointId, Input, SignedTx, step};

    use super::super::super::driver::tests::driver;
    use super::super::super::store::Kind;
    use super::*;
    use crate::{clock, db};

    #[tokio::test]
    async fn what_is_called_back_while_it_is_signed_is_neither_stored_nor_sent() {
        for (state, stored) in [("queued", true), ("refused", false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut driver = driver(dir.path()).await;
            let mut tx = driver.store.begin().await.unwrap();
            let batch = store::open_batch(&mut tx, "relayer", Kind::Register, 1)
                .await
                .unwrap();
            for statement in [
                "INSERT INTO token (jti, cluster_id, node_id, public_key, created_at_s, expires_at_s)
                 VALUES ('t', 'c', 'n', x'01', 1, 2)",
                "INSERT INTO registration (id, jti, cluster_id, node_id, public_key, csr, state, created_at, updated_at)
                 VALUES (7, 't', 'c', 'n', x'01', x'01', 'queued', 1, 1)",
            ] {
                db::query(statement).execute(&mut *tx).await.unwrap();
            }
            tx.commit().await.unwrap();
            let now = clock::now_ms();
            let mut take = |input| step(&mut driver.state, &driver.machine, now, input);
            take(Input::Head {
                endpoint: EndpointId(0),
                height: 10,
                block_time_ms: now,
            });
            take(Input::Submit { batch });
            let asked = take(Input::Account {
                height: 10,
                account_number: 1,
                sequence: 5,
            });
            let [Action::Sign(request)] = asked[..] else {
                panic!("{asked:?}")
            };
            let bytes = vec![1];
            driver.bound = Some(Bound {
                batch,
                row: SignedRow {
                    hash: TxHash::of(&bytes),
                    sequence: request.sequence,
                    timeout_height: request.timeout_height,
                    gas_limit: 1,
                },
                content: Content::Register(vec![7]),
            });
            let mut tx = driver.store.begin().await.unwrap();
            db::query("UPDATE registration SET state = ?")
                .bind(state)
                .execute(&mut *tx)
                .await
                .unwrap();
            tx.commit().await.unwrap();
            driver
                .feed(Input::Signed(SignedTx { request, bytes }))
                .await
                .unwrap();
            // What is not stored is not sent, and the key is free for the next one.
            assert_eq!(driver.state.outstanding().is_some(), stored, "{state}");
            assert_eq!(driver.state.is_idle(), !stored, "{state}");
            let known = store::load_state(driver.store.reader(), "relayer").await.unwrap();
            assert_eq!(known.is_some(), stored, "{state}");
            let kept = store::unended(driver.store.reader(), batch).await.unwrap();
            assert_eq!(kept.is_some(), stored, "{state}");
            let row = db::query("SELECT state FROM registration")
                .fetch_one(driver.store.reader())
                .await
                .unwrap();
            let after = if stored { "sent" } else { state };
            assert_eq!(row.get::<String, _>("state"), after);
        }
    }
}
