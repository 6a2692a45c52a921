use super::driver::DriverError;
use super::store::read_state;
use crate::db;
use crate::store::{Store, StoreError};

/// Name and account of each key with a transaction under way that is not among `configured`: such a transaction is followed
/// to its end, which needs no key. Where a name has come to stand for another key, the former one gets a name of its own.
///
/// # Errors
/// If the store fails, or does not say whose a transaction is.
pub(super) async fn formers(
    store: &Store,
    configured: &[(&str, &str)],
) -> Result<Vec<(String, String)>, DriverError> {
    let sql = |e: sqlx::Error| StoreError::from(e);
    let mut tx = store.begin().await?;
    let rows = db::query("SELECT signer, address, state FROM signer")
        .fetch_all(&mut *tx)
        .await
        .map_err(sql)?;
    let mut formers = Vec::new();
    for row in &rows {
        let name: String = row.try_get("signer").map_err(sql)?;
        let address: Option<String> = row.try_get("address").map_err(sql)?;
        let state: String = row.try_get("state").map_err(sql)?;
        let idle = read_state(&state)?.is_idle();
        let now = configured.iter().find(|(known, _)| *known == name);
        let renamed = match (now, address) {
            // From before accounts were kept: it is taken to be the key's that has the name.
            (Some(_), None) => continue,
            (Some((_, now)), Some(address)) if *now == address => continue,
            (Some(_), Some(address)) => Some((format!("{name} of {address}"), address)),
            // Its name is free for another key.
            (None, address) if idle => Some((String::new(), address.unwrap_or_default())),
            (None, Some(address)) => {
                formers.push((name.clone(), address));
                None
            }
            (None, None) => return Err(DriverError::Former { name }),
        };
        let Some((own, address)) = renamed else { continue };
        let statements: &[&'static str] = if idle {
            &["DELETE FROM signer WHERE signer = ?2"]
        } else {
            &[
                "UPDATE signer SET signer = ?1 WHERE signer = ?2",
                "UPDATE batch SET signer = ?1 WHERE signer = ?2 AND ended IS NULL",
            ]
        };
        for statement in statements {
            db::query(*statement)
                .bind(&own)
                .bind(&name)
                .execute(&mut *tx)
                .await
                .map_err(sql)?;
        }
        if !idle {
            formers.push((own, address));
        }
    }
    tx.commit().await.map_err(sql)?;
    for (name, address) in &formers {
        tracing::info!(
            signer = name,
            address,
            "a key that is used no more has a transaction under way, which is followed to its end"
        );
    }
    Ok(formers)
}

#[cfg(test)]
mod tests {
    use hpc_chain::settle::State;
    use serde_json::json;

    use super::*;

    /// The state of a key with a transaction under way, or with none.
    async fn keep(store: &Store, name: &str, address: Option<&str>, under_way: bool) {
        let mut state = serde_json::to_value(State::default()).unwrap();
        if under_way {
            state["job"] = json!({ "batch": 1, "phase": { "phase": "queued" } });
        }
        let mut tx = store.begin().await.unwrap();
        db::query(
            "INSERT INTO signer (signer, address, state, updated_at) VALUES (?, ?, ?, 0)
             ON CONFLICT (signer) DO UPDATE SET address = excluded.address, state = excluded.state",
        )
        .bind(name)
        .bind(address)
        .bind(state.to_string())
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }

    async fn names(store: &Store) -> Vec<String> {
        let rows = db::query("SELECT signer FROM signer ORDER BY signer");
        let rows = rows.fetch_all(store.reader()).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    #[tokio::test]
    async fn what_is_under_way_of_a_key_that_is_used_no_more_is_known_by_its_account() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        keep(&store, "relayer", Some("wasm1old"), true).await;
        keep(&store, "second", Some("wasm1second"), true).await;
        keep(&store, "third", Some("wasm1third"), false).await;
        let own = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        // As ever.
        let all = [
            ("relayer", "wasm1old"),
            ("second", "wasm1second"),
            ("third", "wasm1third"),
        ];
        assert_eq!(formers(&store, &all).await.unwrap(), []);
        // One name stands for another key, the others are configured no more.
        let found = formers(&store, &[("relayer", "wasm1new")]).await.unwrap();
        assert_eq!(
            found,
            [
                own("relayer of wasm1old", "wasm1old"),
                own("second", "wasm1second")
            ]
        );
        // Of one with nothing under way nothing is kept.
        assert_eq!(names(&store).await, ["relayer of wasm1old", "second"]);
        // The next start finds the same.
        keep(&store, "relayer", Some("wasm1new"), true).await;
        assert_eq!(formers(&store, &[("relayer", "wasm1new")]).await.unwrap(), found);
        // What a replaced key knew of its account is forgotten when nothing is under way.
        keep(&store, "third", Some("wasm1third"), false).await;
        assert_eq!(
            formers(
                &store,
                &[
                    ("third", "wasm1other"),
                    ("second", "wasm1second"),
                    ("relayer", "wasm1new")
                ]
            )
            .await
            .unwrap()
            .len(),
            1
        );
        assert_eq!(names(&store).await, ["relayer", "relayer of wasm1old", "second"]);
    }

    #[tokio::test]
    async fn a_transaction_of_an_unknown_account_keeps_the_daemon_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        keep(&store, "relayer", None, true).await;
        keep(&store, "idle", None, false).await;
        assert_eq!(formers(&store, &[("relayer", "wasm1a")]).await.unwrap(), []);
        let refused = formers(&store, &[("other", "wasm1a")]).await.unwrap_err();
        assert!(refused.to_string().contains("keys.extra_relayers"), "{refused}");
    }
}
