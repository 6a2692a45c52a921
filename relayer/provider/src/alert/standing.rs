//! What Alertmanagers have been told of and not yet the end of: so they are told again also while the store cannot say it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::body;
use super::sink::Kind;

/// Alerts kept for a receiver.
const MOST: usize = 5_000;

/// What goes on, by receiver. Cheap to clone; the clones are one.
#[derive(Debug, Clone, Default)]
pub struct Standing(Arc<Mutex<HashMap<String, Told>>>);

/// What one receiver has been told.
#[derive(Debug)]
struct Told {
    /// By their labels.
    alerts: BTreeMap<String, Value>,
    /// When it was last known that this is so.
    at: Instant,
}

impl Standing {
    /// The receiver has taken a message, of what goes on or of what is over.
    pub(super) fn told(&self, sink: &str, message: &str, now: Instant) {
        self.change(sink, now, |told| told.take_in(message));
    }

    /// By the store these go on, and no others.
    pub(super) fn known(&self, sink: &str, message: &str, now: Instant) {
        self.change(sink, now, |told| {
            told.alerts.clear();
            told.take_in(message);
        });
    }

    /// What was known longer ago may have been over for as long.
    pub(super) fn forget_older(&self, sink: &str, age: Duration, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all
            .get(sink)
            .is_some_and(|told| now.saturating_duration_since(told.at) > age)
        {
            all.remove(sink);
        }
    }

    /// Messages that tell it again.
    pub(super) fn messages(&self, sink: &str) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alerts: Vec<Value> = all
            .get(sink)
            .map(|told| told.alerts.values().cloned().collect())
            .unwrap_or_default();
        let parts = alerts.chunks(body::most(Kind::Alertmanager));
        parts.map(|part| Value::from(part).to_string()).collect()
    }

    fn change(&self, sink: &str, now: Instant, change: impl FnOnce(&mut Told)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.entry(sink.to_owned()).or_insert_with(|| Told {
            alerts: BTreeMap::new(),
            at: now,
        });
        told.at = now;
        change(told);
    }
}

impl Told {
    /// A message as it is stored: what goes on has no end.
    fn take_in(&mut self, message: &str) {
        let Ok(Value::Array(alerts)) = serde_json::from_str(message) else {
            return;
        };
        for alert in alerts {
            let Some(labels) = alert.get("labels").map(Value::to_string) else {
                continue;
            };
            if alert.get("endsAt").is_some() {
                self.alerts.remove(&labels);
            } else if self.alerts.len() < MOST || self.alerts.contains_key(&labels) {
                self.alerts.insert(labels, alert);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A message that these begin, or end.
    fn message(nodes: &[usize], over: bool) -> String {
        let one = |node: &usize| {
            let mut alert = json!({ "labels": { "node": node.to_string() }, "startsAt": "then" });
            if over {
                alert["endsAt"] = json!("now");
            }
            alert
        };
        Value::from(nodes.iter().map(one).collect::<Vec<_>>()).to_string()
    }

    /// The nodes that a receiver would be told again.
    fn again(standing: &Standing, sink: &str) -> Vec<usize> {
        let mut nodes = Vec::new();
        for text in standing.messages(sink) {
            let Value::Array(alerts) = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            assert!(alerts.len() <= body::most(Kind::Alertmanager));
            let node = |a: &Value| a["labels"]["node"].as_str().unwrap().parse::<usize>().unwrap();
            nodes.extend(alerts.iter().map(node));
        }
        nodes.sort_unstable();
        nodes
    }

    #[test]
    fn what_was_told_and_is_not_over_is_told_again_to_whom_it_was_told() {
        let (standing, now) = (Standing::default(), Instant::now());
        assert!(standing.messages("a").is_empty());
        standing.told("a", &message(&[1, 2, 3], false), now);
        standing.told("b", &message(&[4], false), now);
        standing.told("a", &message(&[2, 9], true), now);
        assert_eq!(again(&standing, "a"), [1, 3]);
        assert_eq!(again(&standing.clone(), "b"), [4]);
        // The store knows better.
        standing.known("a", &message(&[3, 5], false), now);
        assert_eq!(again(&standing, "a"), [3, 5]);
        standing.told("a", "no message", now);
        assert_eq!(again(&standing, "a"), [3, 5]);
    }

    #[test]
    fn it_is_bounded_and_forgotten_once_it_is_old() {
        let standing = Standing::default();
        let nodes: Vec<usize> = (0..MOST + 10).collect();
        let (then, age) = (Instant::now(), Duration::from_secs(120));
        standing.told("a", &message(&nodes, false), then);
        assert_eq!(again(&standing, "a").len(), MOST);
        standing.forget_older("a", age, then + age);
        assert_eq!(again(&standing, "a").len(), MOST);
        standing.forget_older("a", age, then + age + Duration::from_millis(1));
        assert!(again(&standing, "a").is_empty());
    }
}
