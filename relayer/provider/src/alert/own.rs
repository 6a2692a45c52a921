//! The daemon's own troubles, as alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use x509_parser::pem::Pem;

use super::book::{self, Alert};
use crate::config::Alerts;
use crate::home::Home;
use crate::identity::trusted_files;
use crate::ops::{Health, Metrics, Trouble};
use crate::store::{Store, StoreError};

/// What cannot be written into the store that fails: receivers are told directly.
pub(super) const UNWRITABLE: &str = "store_failing";

const SINK_FAILING: &str = "alert_sink_failing";

/// Troubles that each of several gateways has for itself; of the others the one that settles knows.
const OF_EACH: [&str; 12] = [
    "certificate_expiring",
    "certificate_unused",
    "controls_failing",
    "endpoint_lost",
    "index_missing",
    "key_unusable",
    "not_synced",
    "reload_failed",
    "row_unreadable",
    "server_certificate",
    "task_key_unusable",
    UNWRITABLE,
];

/// Whether a gateway that does not settle has this trouble for itself.
pub(crate) fn is_of_each(code: &str) -> bool {
    OF_EACH.contains(&code)
}

/// Whose troubles are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// All of the only gateway.
    Alone,
    /// Those that the one of several knows that settles.
    Site,
    /// Those that one of several has for itself.
    Each(String),
}

impl Whose {
    fn instance(&self) -> &str {
        match self {
            Self::Alone | Self::Site => "",
            Self::Each(instance) => instance,
        }
    }

    fn has(&self, code: &str) -> bool {
        match self {
            Self::Alone => true,
            Self::Site => !is_of_each(code),
            Self::Each(_) => is_of_each(code),
        }
    }
}

fn key(t: &Trouble, instance: &str) -> String {
    let mut key = t.code.to_owned();
    for (mark, part) in [("/", t.subject.as_str()), ("@", instance)] {
        if !part.is_empty() {
            key.push_str(mark);
            key.push_str(part);
        }
    }
    key
}

/// What of several an alert is about, such as a key or an endpoint.
pub(super) fn subject(a: &Alert) -> Option<&str> {
    let rest = a.key.strip_prefix(a.name.as_str())?.strip_prefix('/')?;
    let whose = rest
        .strip_suffix(a.instance.as_str())
        .and_then(|r| r.strip_suffix('@'));
    whose.or(Some(rest)).filter(|s| !s.is_empty())
}

pub(super) fn alert(t: &Trouble, instance: &str, now_ms: u64) -> Alert {
    Alert {
        key: key(t, instance),
        name: t.code.to_owned(),
        cluster: String::new(),
        node: String::new(),
        instance: instance.to_owned(),
        severity: t.severity.as_str().to_owned(),
        summary: t.message.clone(),
        started_at: now_ms,
        raised_at: now_ms,
        ended_at: None,
        cleared_at: None,
    }
}

/// Raises again what was said of these receivers before a restart: only a delivery shows that it is over.
pub(super) async fn still_failing(
    store: &Store,
    health: &Health,
    receivers: &[String],
) -> Result<(), StoreError> {
    let mut conn = store.reader().acquire().await?;
    for before in book::troubles(&mut conn, "").await? {
        let Some(receiver) = subject(&before).filter(|_| before.name == SINK_FAILING) else {
            continue;
        };
        if receivers.iter().any(|known| known == receiver) {
            health.raise_of("alert_sink_failing", receiver, before.summary.clone());
        }
    }
    Ok(())
}

/// What can only be found by looking: reports that wait for long.
pub(super) fn look(alerts: &Alerts, metrics: &Metrics, health: &Health) {
    let age = metrics.oldest_unsettled_seconds.get();
    let late = std::time::Duration::from_secs(age) >= alerts.unsettled_after.duration();
    let message = format!("the oldest report has waited for {age} s");
    health.set("reports_unsettled", late.then_some(message));
}

/// Certificates of the gateway, of its CA and of those trusted beside it that end soon, or have ended.
pub(super) fn look_at_certificates(alerts: &Alerts, home: &Home, health: &Health, now_s: u64) {
    const CODE: &str = "certificate_expiring";
    let before = alerts.certificate_before.duration().as_secs();
    let mut all: Vec<(String, PathBuf)> = vec![
        ("gateway".to_owned(), home.server_cert()),
        ("ca".to_owned(), home.ca_cert()),
    ];
    if let Ok(paths) = trusted_files(&home.trusted_cas()) {
        all.extend(paths.into_iter().map(|path| {
            let name = format!(
                "trusted/{}",
                path.file_name().unwrap_or_default().to_string_lossy()
            );
            (name, path)
        }));
    }
    for (what, path) in &all {
        let life = std::fs::read(path).ok().and_then(|pem| life(&pem));
        let message = life.and_then(|life| expires(life, before, now_s));
        let message = message.map(|when| format!("{} {when}", path.display()));
        health.set_of("certificate_expiring", what, message);
    }
    // Of a file that is there no more.
    let there: BTreeSet<&str> = all.iter().map(|(what, _)| what.as_str()).collect();
    let troubles = health.troubles();
    let gone = troubles
        .iter()
        .filter(|t| t.code == CODE && !there.contains(t.subject.as_str()));
    for trouble in gone {
        health.clear_of(CODE, &trouble.subject);
    }
}

/// From when until when a certificate counts.
fn life(pem: &[u8]) -> Option<(u64, u64)> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    let certificate = block.parse_x509().ok()?;
    let validity = certificate.validity();
    let from = u64::try_from(validity.not_before.timestamp()).unwrap_or(0);
    let until = u64::try_from(validity.not_after.timestamp()).ok()?;
    Some((from, until))
}

/// When it ends, if that is to be told: so long before, and of one that is made for a short time in its last sixth: a
/// tool that renews it has done so by then.
fn expires((from, until): (u64, u64), before: u64, now_s: u64) -> Option<String> {
    if until <= now_s {
        return Some(
            "has ended and counts no more from the next reload on; put its successor in place or remove it, and reload".to_owned(),
        );
    }
    let left = until - now_s;
    let soon = left < before.min(until.saturating_sub(from) / 6);
    soon.then(|| format!("ends in {} h", left / 3600))
}

/// What is wrong by the store, as last written.
#[derive(Debug)]
pub(super) struct Written {
    whose: Whose,
    last: Option<BTreeMap<String, String>>,
    /// What was wrong before a restart and has not been found so since.
    unseen: BTreeSet<String>,
}

impl Written {
    pub(super) fn new(whose: Whose) -> Self {
        Self {
            whose,
            last: None,
            unseen: BTreeSet::new(),
        }
    }

    /// Says that what was written goes on. What was ended for silence meanwhile, while the store could not be reached, is
    /// raised anew with the next update.
    pub(super) async fn goes_on(&mut self, store: &Store, now_ms: u64) -> Result<(), StoreError> {
        let written = self.last.as_ref().map_or(0, BTreeMap::len);
        if written == 0 || self.whose.instance().is_empty() {
            return Ok(());
        }
        let mut tx = store.begin().await?;
        let found = book::seen(&mut tx, self.whose.instance(), now_ms).await?;
        tx.commit().await?;
        if usize::try_from(found).is_ok_and(|found| found < written) {
            self.last = None;
        }
        Ok(())
    }

    /// Brings the store up to what is wrong now. Writes only what has changed. What was wrong before a restart is kept until
    /// it was `looked` in this process; what is over by then, and was told to nobody, is not told any more.
    pub(super) async fn update(
        &mut self,
        store: &Store,
        troubles: &[Trouble],
        looked: bool,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let instance = self.whose.instance();
        if self.last.is_none() {
            // Of the time before a restart.
            let mut conn = store.reader().acquire().await?;
            let active = book::troubles(&mut conn, instance).await?;
            self.unseen = active.iter().map(|a| a.key.clone()).collect();
            self.last = Some(active.into_iter().map(|a| (a.key, a.summary)).collect());
        }
        let before = self.last.clone().unwrap_or_default();
        let now: BTreeMap<String, &Trouble> = troubles
            .iter()
            .filter(|t| t.code != UNWRITABLE && self.whose.has(t.code))
            .map(|t| (key(t, instance), t))
            .collect();
        self.unseen.retain(|k| !now.contains_key(k));
        let gone: Vec<&String> = before
            .keys()
            .filter(|k| !now.contains_key(*k) && (looked || !self.unseen.contains(*k)))
            .collect();
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
            if self.unseen.contains(key) {
                book::forget_untold(&mut tx, key).await?;
            }
            book::resolve(&mut tx, key, now_ms, now_ms).await?;
        }
        for trouble in new {
            book::raise(&mut tx, &alert(trouble, instance, now_ms)).await?;
        }
        tx.commit().await?;
        let mut last: BTreeMap<String, String> =
            now.into_iter().map(|(k, t)| (k, t.message.clone())).collect();
        if looked {
            self.unseen.clear();
        } else {
            let kept = before.into_iter().filter(|(k, _)| self.unseen.contains(k));
            last.extend(kept);
        }
        self.last = Some(last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::Site;
    use super::super::outbox;
    use super::super::sink::Kind;
    use super::*;
    use crate::db;

    #[test]
    fn what_ends_soon_by_its_own_life_or_has_ended_is_told() {
        const HOUR: u64 = 3600;
        const DAY: u64 = 24 * HOUR;
        let told = |life: u64, age: u64, before: u64| expires((1_000, 1_000 + life), before, 1_000 + age);
        for (life, age, is_told) in [
            (DAY, 0, false),
            (DAY, 15 * HOUR, false),
            (DAY, 19 * HOUR, false),
            (DAY, 21 * HOUR, true),
            (365 * DAY, 100 * DAY, false),
            (365 * DAY, 350 * DAY, false),
            (365 * DAY, 352 * DAY, true),
        ] {
            assert_eq!(told(life, age, 14 * DAY).is_some(), is_told, "{life} {age}");
        }
        assert_eq!(told(DAY, 23 * HOUR, 14 * DAY).unwrap(), "ends in 1 h");
        assert_eq!(told(DAY, 23 * HOUR, 0), None, "it is not wanted");
        for before in [0, 14 * DAY] {
            assert!(told(DAY, DAY, before).unwrap().contains("has ended"));
        }
    }

    #[test]
    fn a_trusted_ca_that_has_ended_is_told_until_its_file_is_gone() {
        use hpc_schema::time::UnixSeconds;

        let dir = tempfile::tempdir().unwrap();
        let (home, health) = (Home::new(dir.path()), Health::default());
        let now = UnixSeconds(1_800_000_000);
        let (past, _) = crate::identity::Ca::create(now.minus(11 * 365 * 86_400), [2; 16]).unwrap();
        std::fs::create_dir_all(home.trusted_cas()).unwrap();
        let path = home.trusted_cas().join("previous.crt");
        std::fs::write(&path, past.pem()).unwrap();
        let look = || look_at_certificates(&Alerts::default(), &home, &health, now.0);
        look();
        let said = health.readiness();
        assert!(said.ready, "it keeps the daemon from nothing");
        assert!(
            said.notices[0].message.contains("previous.crt has ended"),
            "{said:?}"
        );
        std::fs::remove_file(path).unwrap();
        look();
        assert!(health.troubles().is_empty());
    }

    /// What is to be told next.
    async fn next(store: &Store) -> Option<outbox::Message> {
        let site = Site {
            chain_id: "c".into(),
            contract: "k".into(),
        };
        let next = outbox::next(store, "webhook-1", Kind::Webhook, &site, 0);
        next.await.unwrap()
    }

    #[tokio::test]
    async fn a_trouble_is_told_once_however_often_it_is_seen_and_its_end_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let health = Health::default();
        health.raise_of("insufficient_funds", "relayer", "send tokens to wasm1a");
        let mut written = Written::new(Whose::Alone);
        let (mut messages, mut now) = (Vec::new(), 1_000);
        for round in 0..20 {
            now += 1_000;
            if round == 10 {
                health.clear_of("insufficient_funds", "relayer");
            }
            if round == 5 || round == 15 {
                written = Written::new(Whose::Alone); // a restart
            }
            written
                .update(&store, &health.troubles(), true, now)
                .await
                .unwrap();
            while let Some(message) = next(&store).await {
                assert_eq!(
                    next(&store).await.as_ref(),
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

    #[tokio::test]
    async fn what_was_wrong_before_a_restart_is_neither_told_nor_over_before_it_was_looked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let health = Health::default();
        for subject in ["told", "untold", "lasting"] {
            health.raise_of("key_unusable", subject, "the HSM is gone");
        }
        let mut before = Written::new(Whose::Alone);
        before
            .update(&store, &health.troubles(), true, 1_000)
            .await
            .unwrap();
        let mut tx = store.begin().await.unwrap();
        db::query(
            "INSERT INTO alert_told (sink, key, state) VALUES ('webhook-1', 'key_unusable/told', 'firing')",
        )
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        let active = async || {
            let mut conn = store.reader().acquire().await.unwrap();
            let all = book::troubles(&mut conn, "").await.unwrap();
            let mut keys: Vec<String> = all.iter().filter_map(subject).map(str::to_owned).collect();
            keys.sort();
            keys
        };

        let (health, mut after) = (Health::default(), Written::new(Whose::Alone));
        health.raise_of("key_unusable", "lasting", "the HSM is gone");
        for _ in 0..2 {
            after
                .update(&store, &health.troubles(), false, 60_000)
                .await
                .unwrap();
            assert_eq!(active().await, ["lasting", "told", "untold"]);
        }
        after
            .update(&store, &health.troubles(), true, 61_000)
            .await
            .unwrap();
        assert_eq!(active().await, ["lasting"]);
        let rows = db::query("SELECT key FROM alert ORDER BY key").fetch_all(store.reader());
        let keys: Vec<String> = rows.await.unwrap().iter().map(|r| r.get(0)).collect();
        assert_eq!(keys, ["key_unusable/lasting", "key_unusable/told"]);
    }

    #[tokio::test]
    async fn a_receiver_that_failed_before_a_restart_fails_until_it_takes_something() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let (before, after) = (Health::default(), Health::default());
        for (code, receiver) in [(SINK_FAILING, "webhook a"), (SINK_FAILING, "webhook gone")] {
            before.set_of(code, receiver, Some("HTTP 500".to_owned()));
        }
        before.raise("chain_halted", "no blocks");
        let mut written = Written::new(Whose::Alone);
        written
            .update(&store, &before.troubles(), true, 1_000)
            .await
            .unwrap();
        still_failing(&store, &after, &["webhook a".to_owned()])
            .await
            .unwrap();
        let said: Vec<_> = after
            .troubles()
            .into_iter()
            .map(|t| (t.code, t.subject))
            .collect();
        assert_eq!(said, [(SINK_FAILING, "webhook a".to_owned())]);
    }

    #[tokio::test]
    async fn reports_that_wait_for_too_long_are_told_once_and_once_that_they_are_settled() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let (health, metrics) = (Health::default(), Metrics::default());
        let alerts = Alerts::default();
        assert_eq!(alerts.unsettled_after.as_secs(), 300);
        let mut written = Written::new(Whose::Alone);
        let mut messages = Vec::new();
        // Settled in time, late, later, settled; and all of it again.
        let ages = [0, 7, 299, 300, 301, 900, 0, 4, 299, 0, 300, 299];
        for (age, now) in ages.into_iter().zip((1_000..).step_by(1_000)) {
            metrics.oldest_unsettled_seconds.set(age);
            look(&alerts, &metrics, &health);
            assert!(health.readiness().ready, "heartbeats are taken all the same");
            written
                .update(&store, &health.troubles(), true, now)
                .await
                .unwrap();
            while let Some(message) = next(&store).await {
                outbox::delivered(&store, "webhook-1", &message.id).await.unwrap();
                let body: serde_json::Value = serde_json::from_str(&message.body).unwrap();
                assert_eq!(
                    (&body["name"], &body["severity"]),
                    (&"reports_unsettled".into(), &"critical".into())
                );
                let said = body["alerts"][0]["summary"].as_str().unwrap().to_owned();
                assert_eq!(said, "the oldest report has waited for 300 s");
                messages.push((age, body["status"].as_str().unwrap().to_owned()));
            }
        }
        let told = [
            (300, "firing"),
            (0, "resolved"),
            (300, "firing"),
            (299, "resolved"),
        ];
        assert_eq!(messages, told.map(|(age, status)| (age, status.to_owned())));
    }

    #[tokio::test]
    async fn what_a_gateway_says_of_itself_is_its_own_and_ends_when_it_is_heard_of_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let (one, two) = (Health::default(), Health::default());
        for health in [&one, &two] {
            health.raise_of("endpoint_lost", "http://a", "does not answer");
        }
        one.raise_of("insufficient_funds", "relayer", "send tokens to wasm1a");
        let each = |name: &str| Written::new(Whose::Each(name.to_owned()));
        let (mut site, mut first, mut second) = (Written::new(Whose::Site), each("gw1:1"), each("gw2:1"));
        let active = async || {
            let rows = db::query("SELECT * FROM alert WHERE ended_at IS NULL ORDER BY key");
            let rows = rows.fetch_all(store.reader()).await.unwrap();
            rows.iter().map(|r| Alert::read(r).unwrap()).collect::<Vec<_>>()
        };
        site.update(&store, &one.troubles(), true, 1_000).await.unwrap();
        first.update(&store, &one.troubles(), true, 1_000).await.unwrap();
        second.update(&store, &two.troubles(), true, 1_000).await.unwrap();
        let found = active().await;
        let keys: Vec<_> = found
            .iter()
            .map(|a| (a.key.as_str(), a.instance.as_str(), subject(a)))
            .collect();
        assert_eq!(
            keys,
            [
                ("endpoint_lost/http://a@gw1:1", "gw1:1", Some("http://a")),
                ("endpoint_lost/http://a@gw2:1", "gw2:1", Some("http://a")),
                ("insufficient_funds/relayer", "", Some("relayer")),
            ]
        );
        // The settling one changes: nothing of the others' is ended by it.
        Written::new(Whose::Site)
            .update(&store, &one.troubles(), true, 2_000)
            .await
            .unwrap();
        assert_eq!(active().await.len(), 3);
        // One is heard of, the other is not.
        first.goes_on(&store, 90_000).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        book::end_silent(&mut tx, 60_000, 91_000).await.unwrap();
        tx.commit().await.unwrap();
        let left: Vec<_> = active().await.into_iter().map(|a| a.key).collect();
        assert_eq!(
            left,
            ["endpoint_lost/http://a@gw1:1", "insufficient_funds/relayer"]
        );
        // It was only cut off: what is wrong there is told again.
        second.goes_on(&store, 92_000).await.unwrap();
        second
            .update(&store, &two.troubles(), true, 92_000)
            .await
            .unwrap();
        assert_eq!(active().await.len(), 3);
    }
}
