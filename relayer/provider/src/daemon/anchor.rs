use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
/// Anchors of one transaction.
const AT_ONCE: usize = 20;

/// Anchors the head of the audit log on chain, in each cluster that the operator key owns or operates.
pub(super) async fn anchor(shared: Shared, mut stop: watch::Receiver<bool>) {
    let mut not_before = UnixSeconds(0);
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
            match once(&desk, interval.as_secs(), now).await {
                Ok(0) => {}
                Ok(n) => tracing::info!(clusters = n, "the audit log's head is anchored on chain"),
                Err(e) => {
                    let seconds = RETRY_SECONDS.min(interval.as_secs());
                    not_before = now.plus(seconds);
                    tracing::warn!(error = %e, "the audit log's head cannot be anchored; tried again in {seconds} s");
                }
            }
        }
        tokio::select! {
            () = sleep(interval.duration().min(LOOK_EVERY)) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

/// Anchors where it is time; in how many clusters.
async fn once(desk: &Admin, interval: u64, now: UnixSeconds) -> Result<usize, AdminError> {
    let reader = desk.store.reader();
    let head = audit::head(reader).await?;
    if head.seq == 0 {
        return Ok(0);
    }
    let ours = desk.operator_address()?;
    let anchored = audit::anchored(reader).await?;
    let mut due = Vec::new();
    for cluster in registry::clusters(reader).await? {
        let mine = cluster.owner == ours || cluster.operators.contains(&ours);
        let last = anchored.iter().find(|a| a.cluster_id == cluster.cluster_id);
        if mine && is_due(desk, last, interval, now).await? {
            due.push(cluster);
        }
    }
    let digest = hex::encode(head.digest);
    let (mut done, mut failed) = (0, None);
    let mut waiting: VecDeque<&[Cluster]> = due.chunks(AT_ONCE).collect();
    while let Some(some) = waiting.pop_front() {
        let tx = match desk.operator_sends(&messages(some, &digest)).await {
            Ok(tx) => tx,
            // One that the contract refuses, such as a closed one, keeps no other from it.
            Err(_) if some.len() > 1 => {
                waiting.extend(some.chunks(1));
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
    match failed {
        Some(e) if done == 0 => Err(e),
        _ => Ok(done),
    }
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
