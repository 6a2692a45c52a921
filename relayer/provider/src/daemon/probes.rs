use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::tasks::Shared;
use crate::admin::Admin;
use crate::config::Config;
use crate::gateway::Gateway;

/// How often it is asked whose turn it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Probes that are submitted at one time; the others come a moment later.
const AT_ONCE: usize = 32;
/// A probe that could not be begun by then is not worth it.
const EXPIRES_SECONDS: u64 = 600;

type Key = (ClusterId, NodeId);

/// When it is each node's turn.
#[derive(Debug, Default)]
struct Schedule {
    due: HashMap<Key, Instant>,
}

impl Schedule {
    /// Whose turn it is among those that wait for tasks. A node that comes for the first time has its turn within the
    /// interval, at a place of its own: not all at once when the daemon starts.
    fn turn(&mut self, waiting: Vec<Key>, every: Duration, now: Instant) -> Vec<Key> {
        let kept = now.checked_sub(every.saturating_mul(2));
        self.due.retain(|_, due| kept.is_none_or(|kept| *due >= kept));
        let mut turn = Vec::new();
        for key in waiting {
            let due = *self
                .due
                .entry(key.clone())
                .or_insert_with(|| now + place(&key, every));
            if due <= now && turn.len() < AT_ONCE {
                self.due.insert(key.clone(), now + every);
                turn.push(key);
            }
        }
        turn
    }
}

/// The same place in the interval at each start.
fn place(key: &Key, every: Duration) -> Duration {
    let mut hash = DefaultHasher::new();
    (key.0.as_str(), key.1.as_str()).hash(&mut hash);
    let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(hash.finish() % every)
}

/// Has nodes that wait for tasks probe their health, every `tasks.probe_every`.
pub(super) async fn probes(shared: Shared, gateway: Weak<Gateway>, mut stop: watch::Receiver<bool>) {
    let desk = Admin {
        home: shared.home.clone(),
        config: Config::clone(&shared.live.get()),
        store: shared.store.clone(),
        operator: Some(Arc::clone(&shared.operator)),
        gateway: Weak::clone(&gateway),
    };
    let mut schedule = Schedule::default();
    loop {
        let every = shared.live.get().tasks.probe_every.duration();
        let waiting = match gateway.upgrade() {
            Some(gateway) if !every.is_zero() => gateway.waiting.nodes(),
            _ => Vec::new(),
        };
        for (cluster, node) in schedule.turn(waiting, every, Instant::now()) {
            if let Err(e) = desk.submit_probe(&node, &cluster, EXPIRES_SECONDS).await {
                tracing::warn!(%cluster, %node, "a scheduled health probe cannot be submitted: {e}");
            }
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_turn_once_an_interval_and_not_all_at_once() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let every = Duration::from_secs(3600);
        let nodes: Vec<Key> = (0..200)
            .map(|n| {
                (
                    "hpc-cluster-1".parse().unwrap(),
                    format!("node-{n}").parse().unwrap(),
                )
            })
            .collect();
        let (mut most, mut all) = (0, HashMap::<Key, u32>::new());
        for minute in 0..120u64 {
            let now = start + Duration::from_secs(minute * 60);
            let turn = schedule.turn(nodes.clone(), every, now);
            most = most.max(turn.len());
            turn.into_iter().for_each(|key| *all.entry(key).or_default() += 1);
        }
        assert!(most < 20, "{most} at one time");
        assert_eq!(all.len(), 200);
        assert!(all.values().all(|n| *n == 2 || *n == 1), "{all:?}");
        // Nodes that are gone are forgotten.
        schedule.turn(Vec::new(), every, start + Duration::from_secs(20_000));
        assert!(schedule.due.is_empty());
    }
}
