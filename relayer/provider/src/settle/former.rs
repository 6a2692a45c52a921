use std::collections::BTreeMap;

use super::driver::DriverError;
use super::store::read_state;
use crate::db::{self, Conn};
use crate::store::{Store, StoreError};

/// What is on record of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    name: String,
    /// None: from before accounts were kept.
    address: Option<String>,
    idle: bool,
}

/// Which name each key on record has from now on; none: nothing of it is kept. An account has one driver, whatever name its
/// key has: its transaction is the configured key's of that account. Where a name has come to stand for another account, the
/// former one gets a name of its own.
///
/// # Errors
/// The name of a key with a transaction under way of which nobody knows the account.
fn named(kept: &[Kept], configured: &[(&str, &str)]) -> Result<Vec<(String, Option<String>)>, String> {
    let mut wanted = Vec::new();
    for one in kept {
        let stands_for = configured.iter().find(|(name, _)| *name == one.name);
        let name = match &one.address {
            None => match stands_for {
                // It is taken to be the key's that has the name.
                Some(_) => Some(one.name.clone()),
                None if one.idle => None,
                None => return Err(one.name.clone()),
            },
            Some(address) => match configured.iter().find(|(_, known)| known == address) {
                Some((name, _)) => Some((*name).to_owned()),
                // Its name is free for another key.
                None if one.idle => None,
                None if stands_for.is_some() => Some(format!("{} of {address}", one.name)),
                None => Some(one.name.clone()),
            },
        };
        wanted.push((one, name));
    }
    // Two of one account: what is under way goes on, what has ended is not needed; the one that has the name already comes first.
    wanted.sort_by_key(|(one, name)| (one.idle, name.as_ref() != Some(&one.name), one.name.clone()));
    let mut taken: BTreeMap<String, &Kept> = BTreeMap::new();
    let mut all = Vec::new();
    for (one, name) in wanted {
        let name = match name {
            Some(name) if taken.contains_key(&name) && one.idle => None,
            // Both are under way, by a version that drove an account twice: each to its end.
            Some(name) if taken.contains_key(&name) => Some(format!("{} beside {name}", one.name)),
            name => name,
        };
        if let Some(name) = &name {
            taken.insert(name.clone(), one);
        }
        all.push((one.name.clone(), name));
    }
    Ok(all)
}

/// Name and account of each key with a transaction under way that is not among `configured`, names and accounts: such a
/// transaction is followed to its end, which needs no key.
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
    let mut kept = Vec::new();
    for row in &rows {
        let state: String = row.try_get("state").map_err(sql)?;
        kept.push(Kept {
            name: row.try_get("signer").map_err(sql)?,
            address: row.try_get("address").map_err(sql)?,
            idle: read_state(&state)?.is_idle(),
        });
    }
    let names = named(&kept, configured).map_err(|name| DriverError::Former { name })?;
    rename(&mut tx, &names).await?;
    tx.commit().await.map_err(sql)?;
    let mut formers = Vec::new();
    for (before, now) in names {
        let Some(now) = now else { continue };
        let one = kept.iter().find(|k| k.name == before);
        let Some(address) = one.and_then(|k| k.address.clone()) else {
            continue;
        };
        if configured.iter().any(|(name, _)| *name == now) {
            if now != before {
                tracing::info!(
                    before,
                    signer = now,
                    address,
                    "a key has another name; what it has under way goes on"
                );
            }
            continue;
        }
        tracing::info!(
            signer = now,
            address,
            "a key that is used no more has a transaction under way, which is followed to its end"
        );
        formers.push((now, address));
    }
    formers.sort();
    Ok(formers)
}

/// Gives each its new name, by way of one that no key has: two may change places.
async fn rename(conn: &mut Conn, names: &[(String, Option<String>)]) -> Result<(), StoreError> {
    let aside = |name: &str| format!("\u{1}{name}");
    for (before, now) in names {
        match now {
            None => change(conn, &["DELETE FROM signer WHERE signer = ?2"], before, "").await?,
            Some(now) if now != before => change(conn, MOVE, before, &aside(now)).await?,
            Some(_) => {}
        }
    }
    for (before, now) in names {
        if let Some(now) = now.as_ref().filter(|now| *now != before) {
            change(conn, MOVE, &aside(now), now).await?;
        }
    }
    Ok(())
}

const MOVE: &[&str] = &[
    "UPDATE signer SET signer = ?1 WHERE signer = ?2",
    "UPDATE batch SET signer = ?1 WHERE signer = ?2 AND ended IS NULL",
];

async fn change(
    conn: &mut Conn,
    statements: &[&'static str],
    before: &str,
    now: &str,
) -> Result<(), StoreError> {
    for statement in statements {
        let mut query = db::query(*statement);
        query = query.bind(now).bind(before);
        query.execute(&mut *conn).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hpc_chain::settle::State;
    use serde_json::json;

    use super::*;

    const NONE: [(String, String); 0] = [];

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
        assert_eq!(formers(&store, &all).await.unwrap(), NONE);
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
    async fn an_account_whose_key_has_another_name_is_driven_once_and_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let batches = async |signer: &str| -> i64 {
            let count =
                db::query("SELECT count(*) FROM batch WHERE signer = ? AND ended IS NULL").bind(signer);
            count.fetch_one(store.reader()).await.unwrap().get(0)
        };
        keep(&store, "relayer", Some("wasm1a"), true).await;
        keep(&store, "second", Some("wasm1b"), true).await;
        let mut tx = store.begin().await.unwrap();
        db::query("INSERT INTO batch (signer, kind, created_at) VALUES ('relayer', 'reports', 0)")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        // The same key under a new name; the other two change places.
        assert_eq!(
            formers(&store, &[("payer", "wasm1a"), ("second", "wasm1b")])
                .await
                .unwrap(),
            NONE
        );
        assert_eq!(names(&store).await, ["payer", "second"]);
        assert_eq!((batches("payer").await, batches("relayer").await), (1, 0));
        assert_eq!(
            formers(&store, &[("second", "wasm1a"), ("payer", "wasm1b")])
                .await
                .unwrap(),
            NONE
        );
        assert_eq!(names(&store).await, ["payer", "second"]);
        assert_eq!(batches("second").await, 1);
        // What an idle key of the same account left behind is not needed.
        keep(&store, "old", Some("wasm1a"), false).await;
        assert_eq!(
            formers(&store, &[("old", "wasm1a"), ("payer", "wasm1b")])
                .await
                .unwrap(),
            NONE
        );
        assert_eq!(names(&store).await, ["old", "payer"]);
        assert_eq!(batches("old").await, 1);
        // One that was replaced and comes back under its own name.
        formers(&store, &[("old", "wasm1new"), ("payer", "wasm1b")])
            .await
            .unwrap();
        assert_eq!(names(&store).await, ["old of wasm1a", "payer"]);
        assert_eq!(
            formers(&store, &[("old", "wasm1a"), ("payer", "wasm1b")])
                .await
                .unwrap(),
            NONE
        );
        assert_eq!(names(&store).await, ["old", "payer"]);
    }

    #[test]
    fn whatever_is_on_record_no_two_have_a_name_and_nothing_under_way_is_forgotten() {
        use proptest::prelude::*;
        let name = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
        let account = || prop_oneof![Just("1"), Just("2"), Just("3")];
        let kept = proptest::collection::btree_map(name(), (account(), any::<bool>()), 0..4);
        let configured = proptest::collection::btree_map(name(), account(), 1..3);
        proptest!(|(kept in kept, configured in configured)| {
            let kept: Vec<Kept> = kept
                .into_iter()
                .map(|(name, (address, idle))| Kept { name: name.into(), address: Some(address.into()), idle })
                .collect();
            // An account stands in the configuration once.
            let mut seen = std::collections::BTreeSet::new();
            let configured: Vec<_> = configured.into_iter().filter(|(_, a)| seen.insert(*a)).collect();
            let names = named(&kept, &configured).unwrap();
            let mut now: Vec<_> = names.iter().filter_map(|(_, now)| now.clone()).collect();
            now.sort();
            now.dedup();
            prop_assert_eq!(now.len(), names.iter().filter(|(_, now)| now.is_some()).count());
            for one in &kept {
                let (_, now) = names.iter().find(|(before, _)| *before == one.name).unwrap();
                prop_assert!(one.idle || now.is_some());
                // A configured name is never another account's.
                if let Some((_, address)) = configured.iter().find(|(n, _)| now.as_deref() == Some(*n)) {
                    prop_assert_eq!(Some(*address), one.address.as_deref());
                }
            }
        });
    }

    #[tokio::test]
    async fn a_transaction_of_an_unknown_account_keeps_the_daemon_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        keep(&store, "relayer", None, true).await;
        keep(&store, "idle", None, false).await;
        assert_eq!(formers(&store, &[("relayer", "wasm1a")]).await.unwrap(), NONE);
        let refused = formers(&store, &[("other", "wasm1a")]).await.unwrap_err();
        assert!(refused.to_string().contains("keys.extra_relayers"), "{refused}");
    }
}
