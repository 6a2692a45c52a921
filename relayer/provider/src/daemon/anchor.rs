use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::{Cluster, ExecuteMsg};
use hpc_schema::time::UnixSeconds;
use tokio::sync::watch;
use tokio::time::sleep;

use super::tasks::Shared;
use crate::admin::{Admin, AdminError};
use crate::audit::{self, Anchor, KIND};
use crate::{clock, registry};

/// How often it is looked whether it is time.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a failure it is tried again after so long, or after the interval if that is shorter.
const RETRY_SECONDS: u64 = 600;
/// Anchoring that fails for so long is a trouble.
const FAILING_SECONDS: u64 = 3600;
/// Anchors of one transaction.
const AT_ONCE: usize = 20;

/// Since when not everything could be anchored that was due.
#[derive(Debug, Default)]
struct Failing(Option<UnixSeconds>);

impl Failing {
    /// Takes in how a try ended; the trouble that it is by now, if it is one.
    fn tried(&mut self, failed: Option<&AdminError>, now: UnixSeconds) -> Option<String> {
        let Some(e) = failed else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        (now.since(since) >= FAILING_SECONDS).then(|| {
            format!("the audit log's head could not be anchored on chain for an hour or longer: {e}")
        })
    }
}

/// Anchors the head of the audit log on chain, in each cluster that the operator key owns or operates.
pub(super) async fn anchor(shared: Shared, mut stop: watch::Receiver<bool>) {
    let mut not_before = UnixSeconds(0);
    let mut failing = Failing::default();
    let mut closed = BTreeMap::new();
    loop {
        let config = shared.live.get();
        let interval = config.audit.anchor_interval;
        let now = clock::now();
        if config.audit.anchor && now >= not_before {
            let desk = Admin {
                home: shared.home.clone(),
                config: (*config).clone(),
                store: shared.store.clone(),
                operator: Some(Arc::clone(&shared.operator)),
                gateway: Weak::new(),
            };
            let failed = match once(&desk, interval.as_secs(), now, &mut closed).await {
                Ok((n, failed)) => {
                    if n > 0 {
                        tracing::info!(clusters = n, "the audit log's head is anchored on chain");
                    }
                    failed
                }
                Err(e) => Some(e),
            };
            if let Some(e) = &failed {
                let seconds = RETRY_SECONDS.min(interval.as_secs());
                not_before = now.plus(seconds);
                tracing::warn!(error = %e, "the audit log's head cannot be anchored; tried again in {seconds} s");
            }
            let trouble = failing.tried(failed.as_ref(), now);
            shared.health.set("anchor_failing", trouble);
        } else if !config.audit.anchor {
            shared.health.set("anchor_failing", failing.tried(None, now));
        }
        tokio::select! {
            () = sleep(interval.duration().min(LOOK_EVERY)) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

/// A cluster that the chain does not know is tried again after so long.
const CLOSED_SECONDS: u64 = 3600;

/// Anchors where it is time; in how many clusters, and why not in another one. Those that turn out to be closed are
/// tried again rarely: an endpoint may be behind.
async fn once(
    desk: &Admin,
    interval: u64,
    now: UnixSeconds,
    closed: &mut BTreeMap<ClusterId, UnixSeconds>,
) -> Result<(usize, Option<AdminError>), AdminError> {
    let reader = desk.store.reader();
    let head = audit::head(reader).await?;
    if head.seq == 0 {
        return Ok((0, None));
    }
    let ours = desk.operator_address()?;
    let anchored = audit::anchored(reader).await?;
    let mut due = Vec::new();
    for cluster in registry::clusters(reader).await? {
        let mine = cluster.owner == ours || cluster.operators.contains(&ours);
        let last = anchored.iter().find(|a| a.cluster_id == cluster.cluster_id);
        let shut = closed.get(&cluster.cluster_id);
        let shut = shut.is_some_and(|at| now.0 < at.0.saturating_add(CLOSED_SECONDS));
        if mine && !shut && is_due(desk, last, interval, now).await? {
            due.push(cluster);
        }
    }
    let digest = hex::encode(head.digest);
    let (mut done, mut failed) = (0, None);
    let mut waiting: VecDeque<&[Cluster]> = due.chunks(AT_ONCE).collect();
    while let Some(some) = waiting.pop_front() {
        let tx = match desk.operator_sends(&messages(some, &digest)).await {
            Ok(tx) => tx,
            // One that the contract refuses, such as a closed one, keeps no other from it. What may still take effect is not
            // sent in parts beside it.
            Err(e) if some.len() > 1 && !matches!(e, AdminError::Unknown { .. }) => {
                waiting.extend(some.chunks(1));
                continue;
            }
            // Closed: the chain has it no more, and this one is on record.
            Err(AdminError::OnChain(e)) if e.code == Code::UnknownCluster => {
                for cluster in some {
                    tracing::info!(cluster = %cluster.cluster_id, "the audit log is not anchored in a cluster that the chain does not know; tried again in an hour");
                    closed.insert(cluster.cluster_id.clone(), now);
                }
                continue;
            }
            Err(e) => {
                failed = Some(e);
                continue;
            }
        };
        done += some.len();
        let mut conn = desk.store.begin().await?;
        for cluster in some {
            let anchor = Anchor {
                cluster_id: cluster.cluster_id.clone(),
                seq: head.seq,
                digest: head.digest,
                tx: tx.clone(),
                at: now,
            };
            audit::record_anchor(&mut conn, &anchor).await?;
        }
        conn.commit().await.map_err(crate::store::StoreError::from)?;
    }
    Ok((done, failed))
}

fn messages(clusters: &[Cluster], digest: &str) -> Vec<ExecuteMsg> {
    clusters
        .iter()
        .map(|cluster| ExecuteMsg::Anchor {
            cluster_id: cluster.cluster_id.clone(),
            kind: KIND.to_owned(),
            digest: digest.to_owned(),
        })
        .collect()
}

/// Whether the first row after the last anchor is an interval old: nothing waits longer, and a quiet day costs nothing.
async fn is_due(
    desk: &Admin,
    last: Option<&Anchor>,
    interval: u64,
    now: UnixSeconds,
) -> Result<bool, AdminError> {
    let after = last.map_or(0, |a| a.seq);
    let waiting = audit::page(desk.store.reader(), after, 1).await?;
    Ok(waiting
        .first()
        .is_some_and(|row| now.since(UnixSeconds(row.at / 1000)) >= interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchoring_that_fails_for_an_hour_is_a_trouble_until_one_succeeds() {
        let e = AdminError::Chain("no funds".to_owned());
        let (mut failing, at) = (Failing::default(), UnixSeconds);
        assert_eq!(failing.tried(Some(&e), at(1_000)), None);
        assert_eq!(failing.tried(Some(&e), at(4_599)), None);
        let said = failing.tried(Some(&e), at(4_600)).unwrap();
        assert!(said.contains("no funds"), "{said}");
        assert_eq!(failing.tried(None, at(5_000)), None);
        assert_eq!(failing.tried(Some(&e), at(9_000)), None, "it begins anew");
    }
}
