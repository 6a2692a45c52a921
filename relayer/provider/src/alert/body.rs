//! What receivers read. Pure.

use hpc_schema::time::Rfc3339;
use serde_json::{Value, json};

use super::book::Alert;
use super::group::{Group, Status};
use super::own;
use super::sink::Kind;

/// Alerts that a webhook's message lists; of more it says how many.
const LISTED: usize = 100;
/// Alerts in one request to an Alertmanager.
const POSTED: usize = 100;
/// How long an Alertmanager keeps an alert that it is not told of again, from when the message is sent.
const KEPT_MS: u64 = 15 * 60 * 1000;
/// Characters of a summary.
const SUMMARY: usize = 512;

/// Whose alerts they are.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) chain_id: String,
    pub(super) contract: String,
}

/// Alerts that one message may tell.
pub(super) fn most(kind: Kind) -> usize {
    match kind {
        Kind::Alertmanager => POSTED,
        Kind::Webhook | Kind::Log => 5_000,
    }
}

fn time(ms: u64) -> Value {
    let nanos = u32::try_from((ms % 1000) * 1_000_000).unwrap_or(0);
    Rfc3339::from_unix(ms / 1000, nanos).map_or(Value::Null, |t| json!(t))
}

fn summary(alert: &Alert) -> String {
    alert.summary.chars().take(SUMMARY).collect()
}

/// A message's text.
pub(super) fn write(kind: Kind, site: &Site, id: &str, group: &Group, now_ms: u64) -> String {
    match kind {
        Kind::Alertmanager => alertmanager(site, &group.alerts, group.status, now_ms).to_string(),
        Kind::Webhook | Kind::Log => webhook(site, id, group).to_string(),
    }
}

fn webhook(site: &Site, id: &str, group: &Group) -> Value {
    let first = group.alerts.first();
    let one = |a: &Alert| {
        let ended = (group.status == Status::Resolved).then_some(a.ended_at).flatten();
        let mut value = json!({ "key": a.key, "summary": summary(a), "started_at": time(a.started_at) });
        if let Value::Object(map) = &mut value {
            for (member, value) in [("node_id", &a.node), ("instance", &a.instance)] {
                if !value.is_empty() {
                    map.insert(member.into(), json!(value));
                }
            }
            if let Some(ended) = ended {
                map.insert("ended_at".into(), time(ended));
            }
        }
        value
    };
    let mut message = json!({
        "version": 1,
        "id": id,
        "status": group.status.as_str(),
        "name": first.map(|a| a.name.as_str()),
        "severity": first.map(|a| a.severity.as_str()),
        "chain_id": site.chain_id,
        "contract": site.contract,
        "count": group.alerts.len(),
        "alerts": group.alerts.iter().take(LISTED).map(one).collect::<Vec<_>>(),
    });
    if let (Value::Object(map), Some(cluster)) =
        (&mut message, first.map(|a| &a.cluster).filter(|c| !c.is_empty()))
    {
        map.insert("cluster_id".into(), json!(cluster));
    }
    message
}

/// The body of `POST /api/v2/alerts`; what goes on has no end yet: [`sent`] adds it.
pub(super) fn alertmanager(site: &Site, alerts: &[Alert], status: Status, now_ms: u64) -> Value {
    let one = |a: &Alert| {
        let mut labels = json!({
            "alertname": a.name, "severity": a.severity, "job": "virtengine-provider", "chain_id": site.chain_id,
        });
        if let Value::Object(map) = &mut labels {
            for (label, value) in [
                ("cluster", &a.cluster),
                ("node", &a.node),
                ("instance", &a.instance),
            ] {
                if !value.is_empty() {
                    map.insert(label.into(), json!(value));
                }
            }
            if let Some(subject) = own::subject(a).filter(|_| a.cluster.is_empty()) {
                map.insert("subject".into(), json!(subject));
            }
        }
        // Both may be of the chain's clock: what begins later than it ends is refused, with all that stands beside it.
        let starts = a.started_at.min(now_ms);
        let mut value = json!({
            "labels": labels,
            "annotations": { "summary": summary(a) },
            "startsAt": time(starts),
        });
        let ended = a.ended_at.filter(|_| status == Status::Resolved);
        if let (Value::Object(map), Some(ended)) = (&mut value, ended) {
            map.insert("endsAt".into(), time(ended.min(now_ms).max(starts)));
        }
        value
    };
    Value::Array(alerts.iter().map(one).collect())
}

/// What is sent at `now_ms` of a message that may have waited: what goes on ends at an Alertmanager by itself, a while from
/// now, and is told again before.
pub(super) fn sent(kind: Kind, body: String, now_ms: u64) -> String {
    if kind != Kind::Alertmanager {
        return body;
    }
    let Ok(Value::Array(mut alerts)) = serde_json::from_str::<Value>(&body) else {
        return body;
    };
    for alert in alerts.iter_mut().filter_map(Value::as_object_mut) {
        alert
            .entry("endsAt")
            .or_insert_with(|| time(now_ms.saturating_add(KEPT_MS)));
    }
    Value::Array(alerts).to_string()
}

#[cfg(test)]
mod tests {
    use hpc_schema::time::UnixSeconds;

    use super::*;

    fn alert(n: u64) -> Alert {
        Alert {
            key: format!("node_offline/hpc-cluster-1/node-{n}"),
            name: "node_offline".into(),
            cluster: "hpc-cluster-1".into(),
            node: format!("node-{n:0>60}"),
            instance: String::new(),
            severity: "critical".into(),
            summary: "x".repeat(100_000),
            started_at: 1_700_000_000_000,
            raised_at: 1,
            ended_at: None,
            cleared_at: None,
        }
    }

    fn site() -> Site {
        Site {
            chain_id: "c".repeat(64),
            contract: "w".repeat(64),
        }
    }

    #[test]
    fn whatever_the_clocks_say_an_alert_ends_at_an_alertmanager_after_it_began() {
        const NOW: u64 = 1_700_000_000_000;
        // The chain's clock is ahead, exact, behind; the gateway's goes on while the message waits.
        for (started, ended, starts, ends) in [
            (NOW + 60_000, Some(NOW + 61_000), NOW, NOW),
            (NOW - 60_000, Some(NOW + 61_000), NOW - 60_000, NOW),
            (NOW - 60_000, Some(NOW - 61_000), NOW - 60_000, NOW - 60_000),
            (NOW - 60_000, Some(NOW - 1_000), NOW - 60_000, NOW - 1_000),
            (NOW - 60_000, None, NOW - 60_000, NOW + 3_600_000 + KEPT_MS),
            (NOW + 60_000, None, NOW, NOW + 3_600_000 + KEPT_MS),
        ] {
            let status = if ended.is_some() {
                Status::Resolved
            } else {
                Status::Firing
            };
            let group = Group {
                status,
                alerts: vec![Alert {
                    started_at: started,
                    ended_at: ended,
                    ..alert(1)
                }],
            };
            let body = write(Kind::Alertmanager, &site(), "id", &group, NOW);
            let body = sent(Kind::Alertmanager, body, NOW + 3_600_000);
            let body: Value = serde_json::from_str(&body).unwrap();
            let told = |name: &str| -> UnixSeconds {
                let time: Rfc3339 = body[0][name].as_str().unwrap().parse().unwrap();
                time.seconds()
            };
            let wanted = (UnixSeconds(starts / 1000), UnixSeconds(ends / 1000));
            assert_eq!((told("startsAt"), told("endsAt")), wanted, "{started} {ended:?}");
        }
        // What a webhook's receiver has checked the signature of stays as it is.
        assert_eq!(sent(Kind::Webhook, "[{}]".into(), NOW), "[{}]");
    }

    #[test]
    fn a_message_is_bounded_whatever_it_tells() {
        let site = site();
        let group = Group {
            status: Status::Firing,
            alerts: (0..5_000).map(alert).collect(),
        };
        let text = write(Kind::Webhook, &site, "id", &group, 0);
        assert!(text.len() < 100_000, "{}", text.len());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (value["count"].as_u64(), value["alerts"].as_array().unwrap().len()),
            (Some(5_000), 100)
        );
        assert!(most(Kind::Alertmanager) <= POSTED);
    }
}
