//! What the operator is told: conditions, alarms, gauges.

use hpc_chain::code::{self, Verdict};
use hpc_chain::gas::GasPrice;
use hpc_chain::rpc::SeenBlock;
use hpc_chain::settle::{Alarm, CheckTx, Condition, Input};
use hpc_chain::tx;

use super::super::apart::NodeKey;
use super::Driver;
use crate::clock::{self, Steady};
use crate::ops::Metrics;
use crate::registry::Registry;
use crate::spool::Member;
use crate::store::{Store, StoreError};
use crate::{prove, spool};

/// After so long without another's transaction a key counts as nobody else's.
const QUIET_MS: u64 = 3_600_000;

impl Driver {
    pub(super) fn report_condition(&self) {
        if !self.signers.duties {
            return; // the chain is the same for every key, and one of them tells
        }
        if !self.heads.heard() {
            return; // nobody has had the time to answer
        }
        let (unreachable, halted, off) = match self.state.condition() {
            Condition::Live => (None, None, None),
            Condition::Starting if self.heads.reachable() => return, // its block came since the last turn
            Condition::Starting => (Some("no block has been seen; check chain.rpc"), None, None),
            Condition::Halted if self.heads.reachable() => (None, Some(halted_at(self.heads.top())), None),
            Condition::Halted => (Some("no endpoint of chain.rpc answers; reports wait"), None, None),
            Condition::CatchingUp => (None, None, Some(off_by(self.heads.top(), clock::now_ms()))),
        };
        let gone = (!self.heads.reachable()).then_some("no endpoint of chain.rpc answers; reports wait");
        let unreachable = unreachable.or(gone);
        self.health.set(
            "chain_unreachable",
            unreachable.map(|what| format!("{what}{}", self.heads.why())),
        );
        self.health.set("chain_halted", halted);
        self.health.set("block_time_off", off);
        self.health.heard();
    }

    pub(super) fn alarm(&mut self, alarm: &Alarm) {
        match alarm {
            Alarm::Refused {
                verdict, log, code, ..
            } => {
                self.refusal = Some(verdict.clone());
                self.note_fee(verdict, log);
                match verdict {
                    Verdict::InsufficientFunds => self.no_funds(log),
                    Verdict::FeeGrant => self.no_grant(log),
                    // The next one pays more: nobody need do anything.
                    Verdict::InsufficientFee if self.sizing.can_rise() => {}
                    _ => self.not_taken(&format!("code {code}: {log}; {}", remedy(verdict))),
                }
            }
            Alarm::AccountUnknown => {
                let address = &self.signers.address;
                let remedy = match &self.signers.granter {
                    Some(granter) => format!("a fee grant of {granter} makes it"),
                    None => "send tokens to it".to_owned(),
                };
                self.health.raise_of(
                    "account_unknown",
                    &self.signers.name,
                    format!("the chain does not know {address}; {remedy}"),
                );
            }
            Alarm::ForeignTransaction { sequence } => {
                let name = &self.signers.name;
                tracing::error!(
                    sequence,
                    "another process signs with the key {name}; use one process per key"
                );
                self.shared_at = Some(clock::steady());
                let message = format!(
                    "another process signs with the key {name}, last at sequence {sequence}; use one process per key"
                );
                self.health.raise_of("key_shared", name, message);
            }
            Alarm::SequenceRegressed { known, chain } => {
                tracing::warn!(
                    known,
                    chain,
                    "the chain's sequence of the key {} went down; has the chain been restored from a backup?",
                    self.signers.name
                );
            }
            // Said once for all keys, and once when it is over: report_condition.
            Alarm::Halted { .. } | Alarm::Resumed { .. } | Alarm::BlockTimeOff { .. } => {}
        }
    }

    /// Keeps in mind the price at which a node would have taken the transaction under way, if its refusal says so.
    pub(super) fn note_fee(&mut self, verdict: &Verdict, log: &str) {
        if *verdict != Verdict::InsufficientFee {
            return;
        }
        let Some(gas) = self.state.outstanding().and_then(|o| tx::gas_limit(&o.bytes)) else {
            return;
        };
        let denom = self.sizing.price().denom().to_owned();
        let fees = code::required_fees(log)
            .into_iter()
            .filter(|fee| fee.denom == denom);
        for price in fees.filter_map(|fee| GasPrice::covering(&fee, gas)) {
            self.sizing.asks(price);
        }
    }

    /// Nobody else has signed with the key for long: it is no trouble any more.
    pub(super) fn report_sharing(&mut self, now: Steady) {
        let quiet = |at: Steady| now.since(at) >= QUIET_MS;
        if self.shared_at.is_some_and(quiet) {
            self.shared_at = None;
            self.health.clear_of("key_shared", &self.signers.name);
        }
    }

    /// The paying account is empty: reports wait, and go out once it is funded.
    pub(in crate::settle) fn no_funds(&self, log: &str) {
        let payer = self.signers.granter.as_ref().unwrap_or(&self.signers.address);
        let message = format!("send tokens to {payer}: {log}");
        self.health
            .raise_of("insufficient_funds", &self.signers.name, message);
    }

    /// Fees are to be paid by a grant that is not there, or not any more: reports wait, and go out once it is given anew.
    pub(in crate::settle) fn no_grant(&self, log: &str) {
        let granter = self.signers.granter.as_deref().unwrap_or_default();
        let message = format!(
            "chain.fee_granter: {granter} must have granted fees to {}: {log}",
            self.signers.address
        );
        self.health
            .raise_of("insufficient_funds", &self.signers.name, message);
    }

    /// Gas limits are fitted, and what the chain would refuse is found out in a block: everything goes on.
    pub(in crate::settle) fn simulates_nothing(&self) {
        let message = "what chain.rpc names simulates nothing, gas limits are fitted: set grpc.enable or api.enable in the \
                       app.toml of one of its nodes, or add an endpoint that has one of them";
        self.health.raise("simulation_missing", message);
    }

    /// A node simulates, as it should.
    pub(in crate::settle) fn simulates(&self) {
        self.health.clear("simulation_missing");
    }

    /// Nodes refuse it for a reason that has no remedy of its own.
    pub(in crate::settle) fn not_taken(&self, why: &str) {
        self.health
            .raise_of("transactions_refused", &self.signers.name, why);
    }

    /// A report is not taken, alone in its transaction: it lets others pass. False: too many do.
    pub(in crate::settle) fn put_apart(&mut self, member: &Member, why: &str) -> bool {
        let node = (member.cluster_id.clone(), member.node_id.clone());
        let Some(again) = self.apart.put(node, clock::steady()) else {
            return false;
        };
        tracing::warn!(cluster = %member.cluster_id, node = %member.node_id, sequence = member.sequence,
            "a report is not taken alone; others go before it: {why}");
        if again {
            let node = format!("{}/{}", member.cluster_id, member.node_id);
            let message = format!("a report of node {node} is not taken, others go before it: {why}");
            self.health.raise_of("transactions_refused", &node, message);
        }
        true
    }

    /// Nothing is wrong with a node's reports any more.
    pub(in crate::settle) fn report_taken(&self, (cluster, node): &NodeKey) {
        self.health
            .clear_of("transactions_refused", &format!("{cluster}/{node}"));
    }

    /// A transaction took effect: whatever was wrong with the account is right again.
    pub(super) fn clear_alarms(&self) {
        for code in ["insufficient_funds", "transactions_refused", "account_unknown"] {
            self.health.clear_of(code, &self.signers.name);
        }
    }

    /// What is out of the ordinary in an answer, for whoever reads the log.
    pub(super) fn tell(&self, answer: &Input) {
        match answer {
            Input::CheckTx {
                endpoint,
                hash,
                answer,
            } => tell_check(
                self.client
                    .chain()
                    .endpoints()
                    .get(*endpoint)
                    .map_or("", |c| c.name()),
                &hash.to_string(),
                answer,
            ),
            Input::Found(i) if i.code != 0 => {
                tracing::warn!(tx = %i.hash, height = i.height, code = i.code, codespace = %i.codespace,
                    "a transaction is in a block without effect: {}", i.log);
            }
            Input::Scanned {
                hash,
                from,
                to,
                inclusions,
                gone,
                unread,
            } => {
                tracing::info!(tx = %hash, from, to, found = inclusions.len() + gone.len(), pruned = unread,
                    "the key's sequence was used; the blocks since were read for the transaction");
            }
            _ => {}
        }
    }

    /// Gauges of the queue.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn measure(store: &Store, registry: &Registry, metrics: &Metrics) -> Result<(), StoreError> {
        let depth = spool::depth(store.reader()).await?;
        metrics.waiting.set(depth.waiting);
        metrics.bound.set(depth.bound);
        let age = depth
            .oldest
            .map_or(0, |since| clock::now_ms().saturating_sub(since) / 1000);
        metrics.oldest_unsettled_seconds.set(age);
        metrics
            .evidence_missing
            .set(prove::missing(store.reader()).await?);
        metrics
            .nodes
            .set(u64::try_from(registry.count()).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn halted_at(top: Option<SeenBlock>) -> String {
    let last = top.map_or_else(String::new, |b| format!(" (the last is of height {})", b.height));
    format!("the chain makes no blocks; reports wait and nothing expires{last}")
}

fn off_by(top: Option<SeenBlock>, now_ms: u64) -> String {
    let seconds = top.map_or_else(String::new, |b| {
        let side = if b.time_ms < now_ms { "behind" } else { "ahead" };
        format!(" ({} s {side})", b.time_ms.abs_diff(now_ms) / 1000)
    });
    format!("the newest block's time is more than a minute from this clock{seconds}; check NTP and the node")
}

/// What an operator of the daemon can do; the chain client's own words are for its command line.
fn remedy(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::InsufficientFee => "raise chain.gas_price, or set chain.gas_price_max so that it follows",
        Verdict::TxTooLarge => "the next one is half as large; lower batch.max_tx_bytes and batch.max_gas",
        Verdict::OutOfGas => "the next one is half as large and has more gas",
        other => other.remedy(),
    }
}

fn tell_check(endpoint: &str, tx: &str, answer: &CheckTx) {
    match answer {
        CheckTx::Unclear => {
            tracing::info!(
                endpoint,
                tx,
                "a broadcast had no answer that counts; the same bytes go again"
            );
        }
        CheckTx::Answered {
            verdict, code, log, ..
        } => match verdict {
            Verdict::Accepted => tracing::debug!(endpoint, tx, "a transaction was accepted"),
            Verdict::AlreadyInCache => {
                tracing::debug!(endpoint, tx, "a transaction was sent before: {log}");
            }
            Verdict::MempoolFull => {
                tracing::info!(
                    endpoint,
                    tx,
                    "no room for a transaction; the same bytes go again: {log}"
                );
            }
            Verdict::WrongSequence { .. } => {
                tracing::info!(
                    endpoint,
                    tx,
                    code,
                    "another sequence is expected; the account is read: {log}"
                );
            }
            Verdict::TimeoutHeight => {
                tracing::info!(
                    endpoint,
                    tx,
                    code,
                    "a transaction's time is over; its end is looked for: {log}"
                );
            }
            Verdict::OutOfGas
            | Verdict::InsufficientFee
            | Verdict::InsufficientFunds
            | Verdict::FeeGrant
            | Verdict::Unauthorized
            | Verdict::TxTooLarge
            | Verdict::ContractError
            | Verdict::Other => {
                tracing::warn!(
                    endpoint,
                    tx,
                    code,
                    "a transaction was refused: {log}; {}",
                    remedy(verdict)
                );
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use hpc_chain::rpc::Seen;
    use hpc_chain::settle::EndpointId;
    use tokio::sync::watch;

    use super::super::super::heads::Heads;
    use super::super::tests::{driver, priced};
    use super::*;

    #[test]
    fn what_is_wrong_with_the_chain_is_said_with_height_and_seconds() {
        let top = Some(SeenBlock {
            height: 1356,
            time_ms: 600_000,
        });
        assert!(halted_at(top).ends_with("nothing expires (the last is of height 1356)"));
        assert!(halted_at(None).ends_with("reports wait and nothing expires"));
        assert!(off_by(top, 690_000).contains("from this clock (90 s behind); check NTP"));
        assert!(off_by(top, 0).contains("(600 s ahead)"));
    }

    #[tokio::test]
    async fn nothing_is_said_of_the_chain_before_it_has_had_the_time_to_answer() {
        let dir = tempfile::tempdir().unwrap();
        let driver = driver(dir.path()).await;
        driver.report_condition();
        assert!(driver.health.troubles().is_empty());
    }

    #[tokio::test]
    async fn a_block_that_has_come_and_is_not_taken_in_yet_is_no_chain_that_cannot_be_reached() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = driver(dir.path()).await;
        let (sender, seen) = watch::channel(vec![Seen::default()]);
        driver.heads = Heads::new(seen);
        let block = SeenBlock {
            height: 7,
            time_ms: clock::now_ms(),
        };
        sender.send_modify(|all| all[0].head = Some(block));
        driver.report_condition();
        assert!(driver.health.troubles().is_empty() && !driver.health.has_looked());
        sender.send_modify(|all| {
            all[0].head = None;
            all[0].failure = Some("refused".into());
        });
        driver.report_condition();
        assert_eq!(driver.health.troubles()[0].code, "chain_unreachable");
        assert!(driver.health.has_looked());
    }

    #[tokio::test]
    async fn a_price_that_rises_by_itself_is_no_trouble_until_it_is_as_high_as_it_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = priced(dir.path(), "0.01stake", "0.011stake").await;
        let refused = Alarm::Refused {
            endpoint: EndpointId(0),
            verdict: Verdict::InsufficientFee,
            code: 13,
            codespace: "sdk".into(),
            log: "insufficient fee".into(),
        };
        driver.alarm(&refused);
        assert!(driver.health.troubles().is_empty());
        driver.sizing.refused(&Verdict::InsufficientFee, 1);
        driver.alarm(&refused);
        assert_eq!(driver.health.troubles()[0].code, "transactions_refused");
    }

    #[tokio::test]
    async fn a_key_that_somebody_else_signs_with_is_a_trouble_until_it_was_quiet_for_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = driver(dir.path()).await;
        let said = |driver: &Driver| -> Vec<_> {
            let all = driver.health.troubles();
            all.into_iter().map(|t| (t.code, t.subject)).collect()
        };
        driver.alarm(&Alarm::ForeignTransaction { sequence: 5 });
        let shared = [("key_shared", "relayer".to_owned())];
        assert_eq!(said(&driver), shared);
        // One of its own that takes effect says nothing of others.
        driver.clear_alarms();
        let now = clock::steady();
        driver.report_sharing(now.after(QUIET_MS - 60_000));
        assert_eq!(said(&driver), shared);
        driver.report_sharing(now.after(QUIET_MS + 1));
        assert!(said(&driver).is_empty());
    }
}
