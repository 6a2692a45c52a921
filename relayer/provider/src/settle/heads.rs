//! The endpoints' newest blocks as inputs of the settlement machine, and for everybody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hpc_chain::rpc::{Endpoints, Seen, SeenBlock};
use hpc_chain::settle::{EndpointId, Input};
use hpc_schema::time::UnixSeconds;
use tokio::sync::watch;

use super::partial::partial;
use crate::ops::{Health, Metrics};
use crate::registry::{Registry, Tip};

/// An endpoint so many blocks below the highest is said to be behind.
const BEHIND: u64 = 10;
/// So often it is looked what endpoints answer, also without news of a block.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// One driver's view of the endpoints.
#[derive(Debug)]
pub(super) struct Heads {
    seen: watch::Receiver<Vec<Seen>>,
    told: Vec<Option<SeenBlock>>,
    /// Whether the older block of an endpoint was told: once is enough.
    older: Vec<bool>,
}

impl Heads {
    pub(super) fn new(seen: watch::Receiver<Vec<Seen>>) -> Self {
        Self {
            seen,
            told: Vec::new(),
            older: Vec::new(),
        }
    }

    /// Waits for news of an endpoint.
    pub(super) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            // The follower has gone; the daemon is stopping.
            std::future::pending::<()>().await;
        }
    }

    /// Whether any endpoint answers.
    pub(super) fn reachable(&self) -> bool {
        self.seen.borrow().iter().any(|s| s.head.is_some())
    }

    /// Whether it is known if one does: one does, or each has failed.
    pub(super) fn heard(&self) -> bool {
        let seen = self.seen.borrow();
        let failed = |s: &Seen| s.failure.is_some() || s.gone || s.foreign.is_some();
        seen.iter().any(|s| s.head.is_some()) || (!seen.is_empty() && seen.iter().all(failed))
    }

    /// The newest block of all.
    pub(super) fn top(&self) -> Option<SeenBlock> {
        let seen = self.seen.borrow();
        seen.iter().filter_map(|s| s.head).max_by_key(|b| b.height)
    }

    /// Why an endpoint does not answer, after a colon; nothing if none has said why.
    pub(super) fn why(&self) -> String {
        let seen = self.seen.borrow();
        let first = seen.iter().find_map(|s| s.failure.as_ref());
        first.map_or_else(String::new, |why| format!(": {why}"))
    }

    /// The other chain that every endpoint is of, if that is so.
    pub(super) fn foreign(&self) -> Option<String> {
        let seen = self.seen.borrow();
        let mut asked = seen.iter().filter(|s| !s.gone);
        let first = asked.next()?.foreign.clone()?;
        asked.all(|s| s.foreign.is_some()).then_some(first)
    }

    /// What has changed since the last call.
    pub(super) fn inputs(&mut self) -> Vec<Input> {
        let seen = self.seen.borrow_and_update().clone();
        self.told.resize(seen.len(), None);
        self.older.resize(seen.len(), false);
        let mut inputs = Vec::new();
        let known = self.told.iter_mut().zip(self.older.iter_mut());
        for ((number, now), (told, older)) in (0u16..).zip(&seen).zip(known) {
            let endpoint = EndpointId(number);
            let input = |b: SeenBlock| Input::Head {
                endpoint,
                height: b.height,
                block_time_ms: b.time_ms,
            };
            match now.head {
                None if told.is_some() => inputs.push(Input::EndpointLost { endpoint }),
                Some(head) if *told != Some(head) => {
                    if let Some(before) = now.older.filter(|b| b.height < head.height)
                        && !std::mem::replace(older, true)
                    {
                        inputs.push(input(before));
                    }
                    inputs.push(input(head));
                }
                None | Some(_) => {}
            }
            *told = now.head;
        }
        inputs
    }
}

/// Tells everybody else about new blocks, and operators about endpoints that come and go, until `stop`.
pub async fn watch_endpoints(
    mut seen: watch::Receiver<Vec<Seen>>,
    endpoints: Endpoints,
    registry: Arc<Registry>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let mut before: Vec<Standing> = Vec::new();
    let mut unindexed = Unindexed::default();
    loop {
        let now = seen.borrow_and_update().clone();
        let top = now
            .iter()
            .filter_map(|s| s.head.map(|h| (h, s.latency_ms)))
            .max_by_key(|(h, _)| h.height);
        if let Some((head, latency_ms)) = top {
            registry.set_tip(Tip {
                height: head.height,
                time: UnixSeconds(head.time_ms / 1000),
                latency_ms: Some(latency_ms),
            });
            metrics.chain_height.set(head.height);
            metrics.chain_latency_ms.set(latency_ms);
        }
        let highest = top.map_or(0, |(h, _)| h.height);
        let standings: Vec<Standing> = now.iter().map(|s| Standing::of(s, highest)).collect();
        metrics.endpoint_unanswered_seconds.clear();
        // Addresses that differ in what is never shown have one name.
        let mut troubles: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for (index, (number, standing)) in (0u16..).zip(&standings).enumerate() {
            let was = before.get(index).unwrap_or(&Standing::Unknown);
            let Some(client) = endpoints.get(EndpointId(number)) else {
                continue;
            };
            if was != standing {
                say(client.name(), was, standing, now.get(index));
            }
            let in_part = || matches!(standing, Standing::Good { .. }).then(|| partial(client, &metrics));
            let wrong = standing.trouble(client.name()).or_else(|| in_part().flatten());
            let of_name = troubles.entry(client.name()).or_default();
            *of_name = of_name.take().or(wrong);
        }
        for (name, wrong) in troubles {
            health.set_of("endpoint_lost", name, wrong);
        }
        before = standings;
        unindexed.tell(&now, &endpoints, &health);
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

/// Endpoints that keep no index of transactions, of which it was said: by number.
#[derive(Debug, Default)]
struct Unindexed(BTreeSet<u16>);

impl Unindexed {
    /// Says it of each once. It is a trouble only where none of those that answer keeps one: then the end of a transaction is
    /// seen late.
    fn tell(&mut self, seen: &[Seen], endpoints: &Endpoints, health: &Health) {
        let mut all = true;
        let mut any = false;
        for (number, one) in (0u16..).zip(seen).filter(|(_, s)| s.head.is_some()) {
            (any, all) = (true, all && one.index_off);
            if !one.index_off {
                self.0.remove(&number);
            } else if self.0.insert(number)
                && let Some(client) = endpoints.get(EndpointId(number))
            {
                tracing::warn!(
                    endpoint = client.name(),
                    "an endpoint of chain.rpc keeps no index of transactions: set indexer = \"kv\" under [tx_index] in its \
                     node's config.toml"
                );
            }
        }
        // A first answer says nothing of the others.
        let heard = |s: &Seen| s.head.is_some() || s.failure.is_some() || s.gone || s.foreign.is_some();
        if any && seen.iter().all(heard) {
            let what = "what chain.rpc names keeps no index of transactions, how one ended is seen at its timeout height \
                        alone: set indexer = \"kv\" under [tx_index] in the config.toml of one of its nodes, or add an \
                        endpoint that keeps one";
            health.set("index_missing", all.then(|| what.to_owned()));
        }
    }
}

/// What an operator wants to know of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unknown,
    Gone,
    Lost,
    Foreign,
    Behind,
    Good { told: bool },
}

impl Standing {
    /// What is wrong with it, if anything is.
    fn trouble(self, endpoint: &str) -> Option<String> {
        let what = match self {
            Self::Unknown | Self::Gone | Self::Good { .. } => return None,
            Self::Lost => "does not answer",
            Self::Foreign => "is of another chain and is not asked",
            Self::Behind => "is behind the others",
        };
        Some(format!("{endpoint} of chain.rpc {what}"))
    }

    fn of(seen: &Seen, highest: u64) -> Self {
        match seen.head {
            _ if seen.gone => Self::Gone,
            _ if seen.foreign.is_some() => Self::Foreign,
            None if seen.failure.is_some() => Self::Lost,
            None => Self::Unknown,
            Some(h) if h.height.saturating_add(BEHIND) <= highest => Self::Behind,
            Some(_) => Self::Good {
                told: seen.subscribed,
            },
        }
    }
}

fn say(endpoint: &str, was: &Standing, now: &Standing, seen: Option<&Seen>) {
    let height = seen.and_then(|s| s.head).map_or(0, |h| h.height);
    let text = |t: Option<&String>| t.cloned().unwrap_or_default();
    match now {
        Standing::Unknown => {}
        Standing::Gone => tracing::info!(endpoint, "an endpoint of chain.rpc is asked no more"),
        Standing::Lost => {
            let why = text(seen.and_then(|s| s.failure.as_ref()));
            tracing::warn!(endpoint, "an endpoint of chain.rpc does not answer: {why}");
        }
        Standing::Foreign => {
            let found = text(seen.and_then(|s| s.foreign.as_ref()));
            tracing::error!(
                endpoint,
                chain = found,
                "an endpoint of chain.rpc is of another chain and is not asked"
            );
        }
        Standing::Behind => {
            tracing::warn!(endpoint, height, "an endpoint of chain.rpc is behind the others");
        }
        Standing::Good { told } => {
            if !matches!(was, Standing::Unknown | Standing::Gone | Standing::Good { .. }) {
                tracing::info!(endpoint, height, "an endpoint of chain.rpc is well again");
            }
            if *told {
                tracing::debug!(endpoint, "new blocks are told by subscription");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hpc_chain::rpc::ClientOptions;

    use super::*;

    fn block(height: u64) -> SeenBlock {
        SeenBlock {
            height,
            time_ms: height * 1000,
        }
    }

    fn head(endpoint: u16, height: u64) -> Input {
        Input::Head {
            endpoint: EndpointId(endpoint),
            height,
            block_time_ms: height * 1000,
        }
    }

    #[test]
    fn each_change_of_an_endpoint_is_told_once_and_the_older_block_first() {
        let (sender, seen) = watch::channel(vec![Seen::default(); 2]);
        let mut heads = Heads::new(seen);
        assert!(heads.inputs().is_empty() && !heads.reachable());
        sender.send_modify(|all| {
            all[1].head = Some(block(30));
            all[1].older = Some(block(10));
        });
        assert_eq!(heads.inputs(), [head(1, 10), head(1, 30)]);
        assert!(heads.inputs().is_empty() && heads.reachable());
        sender.send_modify(|all| all[1].head = Some(block(31)));
        assert_eq!(heads.inputs(), [head(1, 31)]);
        sender.send_modify(|all| all[1].head = None);
        let lost = Input::EndpointLost {
            endpoint: EndpointId(1),
        };
        assert_eq!(heads.inputs(), [lost]);
        assert!(heads.inputs().is_empty() && !heads.reachable());
        sender.send_modify(|all| all[1].head = Some(block(31)));
        assert_eq!(heads.inputs(), [head(1, 31)], "it is back");
    }

    #[test]
    fn an_index_that_is_missing_is_said_of_each_endpoint_and_is_a_notice_where_none_has_one() {
        let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
        let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
        let (health, mut unindexed) = (Health::default(), Unindexed::default());
        let answers = |index_off| Seen {
            head: Some(block(5)),
            index_off,
            ..Seen::default()
        };
        let mut told = |seen: [Seen; 2]| {
            unindexed.tell(&seen, &endpoints, &health);
            let said: Vec<u16> = unindexed.0.iter().copied().collect();
            (said, health.readiness().notices.len())
        };
        assert_eq!(told([answers(false), Seen::default()]), (vec![], 0));
        assert_eq!(told([answers(true), answers(false)]), (vec![0], 0));
        assert_eq!(told([answers(true), answers(true)]), (vec![0, 1], 1));
        assert_eq!(
            told([Seen::default(), Seen::default()]),
            (vec![0, 1], 1),
            "nobody says otherwise"
        );
        let said = health.readiness();
        assert!(said.ready, "the daemon works all the same");
        assert_eq!(said.notices[0].code, "index_missing");
        assert!(said.notices[0].message.contains("indexer = \"kv\""), "{said:?}");
    }

    #[test]
    fn an_index_that_comes_back_is_no_trouble_any_more() {
        let endpoints = Endpoints::new(&["http://127.0.0.1:1"], ClientOptions::default()).unwrap();
        let (health, mut unindexed) = (Health::default(), Unindexed::default());
        for (index_off, troubles) in [(true, 1), (false, 0), (true, 1)] {
            let seen = Seen {
                head: Some(block(5)),
                index_off,
                ..Seen::default()
            };
            unindexed.tell(&[seen], &endpoints, &health);
            assert_eq!(health.troubles().len(), troubles);
            assert_eq!(unindexed.0.contains(&0), index_off);
        }
    }

    #[test]
    fn a_wrong_chain_ends_the_daemon_only_if_every_endpoint_is_of_one() {
        let (sender, seen) = watch::channel(vec![Seen::default(); 2]);
        let heads = Heads::new(seen);
        sender.send_modify(|all| all[0].foreign = Some("other-1".into()));
        assert_eq!(heads.foreign(), None);
        sender.send_modify(|all| all[1].foreign = Some("other-2".into()));
        assert_eq!(heads.foreign().as_deref(), Some("other-1"));
    }
}
