//! The daemon's own troubles, as alerts.

use std::collections::BTreeMap;

use x509_parser::pem::Pem;

use super::book::{self, Alert};
use crate::config::Alerts;
use crate::home::Home;
use crate::ops::{Health, Metrics, Trouble};
use crate::store::{Store, StoreError};

/// What cannot be written into the store that fails: receivers are told directly.
pub(super) const UNWRITABLE: &str = "store_failing";

fn key(t: &Trouble) -> String {
    if t.subject.is_empty() {
        t.code.to_owned()
    } else {
        format!("{}/{}", t.code, t.subject)
    }
}

pub(super) fn alert(t: &Trouble, now_ms: u64) -> Alert {
    Alert {
        key: key(t),
        name: t.code.to_owned(),
        cluster: String::new(),
        node: String::new(),
        severity: t.severity.as_str().to_owned(),
        summary: t.message.clone(),
        started_at: now_ms,
        raised_at: now_ms,
        ended_at: None,
        cleared_at: None,
    }
}

/// What can only be found by looking: reports that wait for long.
pub(super) fn look(alerts: &Alerts, metrics: &Metrics, health: &Health) {
    let age = metrics.oldest_unsettled_seconds.get();
    let late = std::time::Duration::from_secs(age) >= alerts.unsettled_after.duration();
    let message = format!("the oldest report has waited for {age} s");
    health.set("reports_unsettled", late.then_some(message));
}

/// Certificates of the gateway and its CA that end soon.
pub(super) fn look_at_certificates(alerts: &Alerts, home: &Home, health: &Health, now_s: u64) {
    for (what, path) in [("gateway", home.server_cert()), ("ca", home.ca_cert())] {
        let until = std::fs::read(&path).ok().and_then(|pem| ends(&pem));
        let left = until.map(|until| until.saturating_sub(now_s));
        let soon = left.filter(|left| *left < alerts.certificate_before.duration().as_secs());
        let message = soon.map(|left| format!("{} ends in {} h", path.display(), left / 3600));
        health.set_of("certificate_expiring", what, message);
    }
}

fn ends(pem: &[u8]) -> Option<u64> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    let until = block.parse_x509().ok()?.validity().not_after.timestamp();
    u64::try_from(until).ok()
}

/// What is wrong by the store, as last written.
#[derive(Debug, Default)]
pub(super) struct Written(Option<BTreeMap<String, String>>);

impl Written {
    /// Brings the store up to what is wrong now. Writes only what has changed.
    pub(super) async fn update(
        &mut self,
        store: &Store,
        troubles: &[Trouble],
        now_ms: u64,
    ) -> Result<(), StoreError> {
        if self.0.is_none() {
            // Of the time before a restart.
            let mut conn = store.reader().acquire().await?;
            let active = book::active(&mut conn, false).await?;
            self.0 = Some(active.into_iter().map(|a| (a.key, a.summary)).collect());
        }
        let before = self.0.clone().unwrap_or_default();
        let now: BTreeMap<String, &Trouble> = troubles
            .iter()
            .filter(|t| t.code != UNWRITABLE)
            .map(|t| (key(t), t))
            .collect();
        let gone: Vec<&String> = before.keys().filter(|k| !now.contains_key(*k)).collect();
        // Its words may change with every second: they count as they were when it began.
        let new: Vec<&&Trouble> = now
            .iter()
            .filter(|(k, _)| !before.contains_key(*k))
            .map(|(_, t)| t)
            .collect();
        if gone.is_empty() && new.is_empty() {
            return Ok(());
        }
        let mut tx = store.begin().await?;
        for key in gone {
            book::resolve(&mut tx, key, now_ms, now_ms).await?;
        }
        for trouble in new {
            book::raise(&mut tx, &alert(trouble, now_ms)).await?;
        }
        tx.commit().await?;
        self.0 = Some(now.into_iter().map(|(k, t)| (k, t.message.clone())).collect());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::Site;
    use super::super::outbox;
    use super::super::sink::Kind;
    use super::*;

    #[tokio::test]
    async fn a_trouble_is_told_once_however_often_it_is_seen_and_its_end_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let health = Health::default();
        let site = Site {
            chain_id: "c".into(),
            contract: "k".into(),
        };
        let next = async || {
            outbox::next(&store, "webhook-1", Kind::Webhook, &site, 0)
                .await
                .unwrap()
        };
        health.raise_of("insufficient_funds", "relayer", "send tokens to wasm1a");
        let mut written = Written::default();
        let (mut messages, mut now) = (Vec::new(), 1_000);
        for round in 0..20 {
            now += 1_000;
            if round == 10 {
                health.clear_of("insufficient_funds", "relayer");
            }
            if round == 5 || round == 15 {
                written = Written::default(); // a restart
            }
            written.update(&store, &health.troubles(), now).await.unwrap();
            while let Some(message) = next().await {
                assert_eq!(
                    next().await.as_ref(),
                    Some(&message),
                    "the same until it is delivered"
                );
                outbox::delivered(&store, "webhook-1", &message.id).await.unwrap();
                let body: serde_json::Value = serde_json::from_str(&message.body).unwrap();
                messages.push((round, body["status"].as_str().unwrap().to_owned()));
            }
        }
        assert_eq!(messages, [(0, "firing".to_owned()), (10, "resolved".to_owned())]);
        let mut tx = store.begin().await.unwrap();
        book::forget(&mut tx, 1, 0, now).await.unwrap();
        tx.commit().await.unwrap();
        let left: i64 = crate::db::query("SELECT count(*) FROM alert")
            .fetch_one(store.reader())
            .await
            .unwrap()
            .get(0);
        assert_eq!(left, 0, "and nothing of it stays");
    }
}
