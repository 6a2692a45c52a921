//! Works off a proven end.

use hpc_chain::code::{self, Verdict};
use hpc_chain::settle::{BatchId, End, Input, step};

use super::super::apart::may_be_its_fault;
use super::super::ending::{self, Ending, EndingError, Fate, RegisterFate};
use super::super::fit::{self, Load};
use super::super::rota::Duty;
use super::super::store::{self, Kind};
use super::{BACKOFF_MS, Driver, DriverError};
use crate::ops::TxLabels;
use crate::registry::sync_nodes;
use crate::spool::EndedAs;
use crate::store::StoreError;
use crate::{clock, fault};

impl Driver {
    /// Works off a proven end; tried again at the next turn if the chain cannot be asked.
    pub(super) async fn finish(&mut self) -> Result<(), DriverError> {
        let Some((batch, end)) = self.ending.clone() else {
            return Ok(());
        };
        match self.settle(batch, &end).await {
            Ok(()) => {
                self.ending = None;
                self.claims.release(&self.signers.name);
                self.look_at = clock::steady();
            }
            Err(EndingError::Query(e)) => {
                tracing::warn!(batch = batch.0, error = %e, "the outcomes of a transaction cannot be read yet");
            }
            Err(EndingError::Store(e)) => return Err(e.into()),
        }
        Ok(())
    }

    async fn settle(&mut self, batch: BatchId, end: &End) -> Result<(), EndingError> {
        let known = store::unended(self.store.reader(), batch).await?;
        let mut ending = match known {
            Some((Kind::Reports, hash)) => {
                let members = self.backlog.members(&self.store, batch.0).await?;
                ending::of_reports(&self.client, members, hash, end).await?
            }
            Some((Kind::Register, hash)) => {
                ending::of_registrations(&self.client, &self.store, batch, hash, end).await?
            }
            Some((Kind::Sweep | Kind::Prune, _)) | None => Ending::Nothing,
        };
        fault::point("settle.outcomes");
        let now = clock::now_ms();
        let size = self.state.outstanding().map_or(0, |o| o.bytes.len());
        let mut settled = self.state.clone();
        // The one action that may follow is to persist, which happens in the commit below.
        drop(step(&mut settled, &self.machine, now, Input::Settled { batch }));
        let height = match end {
            End::Included(i) | End::Failed(i) => Some(i.height),
            End::Expired { .. } | End::Consumed { .. } => None,
        };
        let mut tx = self.store.begin().await?;
        ending::write(&mut tx, batch, &mut ending, height, now).await?;
        store::record_end(&mut tx, batch, end, now).await?;
        let learnt = self.sizing.learnt();
        store::save_state(&mut tx, self.signers.account(), &settled, learnt.as_ref(), now).await?;
        fault::point("settle.settling");
        tx.commit().await.map_err(StoreError::from)?;
        fault::point("settle.settled");
        if let End::Failed(i) = end {
            self.note_fee(&code::of_abci(&i.codespace, i.code, &i.log), &i.log);
        }
        self.state = settled;
        if let Some((stored, hash)) = known {
            // The store has one word for sweeps and prunes.
            let planned = self.job.as_ref().filter(|(of, ..)| *of == batch);
            let kind = planned.map_or(stored, |(_, kind, _)| *kind);
            self.after_reports(&ending, end);
            let duty = self.duty_of(batch);
            self.learn_gas(batch, end);
            let size = u64::try_from(size).unwrap_or(u64::MAX);
            self.after(kind, duty.as_ref(), (end, took(&ending)), size);
            let hash = hash.map(|h| h.to_string()).unwrap_or_default();
            tracing::info!(
                batch = batch.0,
                kind = kind.as_str(),
                tx = hash,
                end = store::end_word(end),
                "transaction ended"
            );
            if self.sizing.learnt() != learnt {
                self.save_learnt(now).await?;
            }
        }
        for (cluster, ids) in ending::announce(&ending, &self.registry, &self.metrics) {
            if let Err(e) = sync_nodes(&self.client, &self.store, &self.registry, &cluster, &ids, now).await {
                tracing::debug!(%cluster, error = %e, "nodes are read again at the next round");
            }
        }
        Ok(())
    }

    /// Stores the price that the end has changed, which a restart would not know otherwise.
    async fn save_learnt(&self, now_ms: u64) -> Result<(), StoreError> {
        let learnt = self.sizing.learnt();
        let mut tx = self.store.begin().await?;
        store::save_state(
            &mut tx,
            self.signers.account(),
            &self.state,
            learnt.as_ref(),
            now_ms,
        )
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Reports that took effect need let nobody pass any more; one that was alone at fault does.
    fn after_reports(&mut self, ending: &Ending, end: &End) {
        let Ending::Reports(fates) = ending else { return };
        let refusal = match end {
            End::Included(_) | End::Consumed { .. } => {
                // Of one whose result nobody keeps, those that the contract has.
                let taken = |f: &Fate| matches!(end, End::Included(_)) || is_on_chain(f);
                for (m, _) in fates.iter().filter(|(_, fate)| taken(fate)) {
                    let node = (m.cluster_id.clone(), m.node_id.clone());
                    if self.apart.remove(&node) {
                        self.report_taken(&node);
                    }
                }
                // Where another one had its number nothing in it is at fault.
                if matches!(end, End::Included(_) | End::Consumed { overtaken: true, .. }) {
                    return;
                }
                Some(Verdict::OutOfGas)
            }
            End::Failed(i) => Some(code::of_abci(&i.codespace, i.code, &i.log)),
            End::Expired { .. } => self.refusal.clone(),
        };
        let ([(alone, Fate::Returned)], Some(verdict)) = (fates.as_slice(), refusal) else {
            return;
        };
        // Of gas it is given more first.
        let once_more = verdict == Verdict::OutOfGas && !self.sizing.is_short_of_gas();
        if may_be_its_fault(&verdict) && !once_more {
            self.put_apart(alone, verdict.remedy());
        }
    }

    /// What the end says about the gas of the next transaction.
    fn learn_gas(&mut self, batch: BatchId, end: &End) {
        let Some((_, load)) = self.load.take_if(|(of, _)| *of == batch) else {
            return;
        };
        let used = match end {
            End::Included(i) => i.gas_used,
            // At least so much.
            End::Failed(i) if code::of_abci(&i.codespace, i.code, &i.log) == Verdict::OutOfGas => i.gas_used,
            End::Failed(_) | End::Expired { .. } | End::Consumed { .. } => 0,
        };
        if used > 0 {
            self.measured(load, used);
        }
    }

    /// A simulation, or a block, has shown what a transaction takes.
    pub(in crate::settle) fn measured(&mut self, load: Load, used: u64) {
        let fitted = self.fit.gas(load);
        if fit::is_off(fitted, used) {
            tracing::debug!(
                ?load,
                fitted,
                used,
                "the fitted gas was off by more than a quarter"
            );
        }
        self.fit.learn(load, used);
    }

    /// What the end says about the next transaction, and that something of it is on chain.
    fn after(&mut self, kind: Kind, duty: Option<&Duty>, (end, took): (&End, bool), bytes: u64) {
        let labels = TxLabels {
            kind: kind.as_str(),
            end: store::end_word(end),
        };
        self.metrics.transactions.get_or_create(&labels).inc();
        let now = clock::now_ms();
        match end {
            End::Included(_) => {
                match duty {
                    Some(duty) => {
                        self.sizing.paid(now);
                        self.rota.taken(duty);
                        self.duty_taken(duty);
                    }
                    None => self.sizing.included(bytes, now),
                }
                self.clear_alarms();
            }
            End::Failed(i) => {
                let verdict = code::of_abci(&i.codespace, i.code, &i.log);
                tracing::warn!(code = i.code, codespace = %i.codespace, "transaction failed: {}; {}", i.log, verdict.remedy());
                self.refused(duty, &verdict, bytes);
                self.backoff_until = clock::steady().after(BACKOFF_MS);
            }
            // No endpoint took it: the next one must be another.
            End::Expired { .. } => {
                if let Some(verdict) = self.refusal.take() {
                    self.refused(duty, &verdict, bytes);
                }
            }
            End::Consumed { .. } if duty.is_some() => self.backoff_until = clock::steady().after(BACKOFF_MS),
            // Another one had the number, which says nothing of its size or gas, even if it relayed the same.
            End::Consumed { overtaken: true, .. } => self.backoff_until = clock::steady().after(BACKOFF_MS),
            End::Consumed { .. } if took => {
                self.sizing.included(bytes, now);
                self.clear_alarms();
            }
            // It failed and nobody keeps why: it may have had too little gas, and is not to be paid for again at once.
            End::Consumed { .. } => {
                self.sizing.refused(&Verdict::OutOfGas, bytes);
                self.backoff_until = clock::steady().after(BACKOFF_MS);
            }
        }
    }

    /// What a duty is refused with says nothing about the size of others.
    fn refused(&mut self, duty: Option<&Duty>, verdict: &Verdict, bytes: u64) {
        match duty {
            // What is paid for gas is the same whatever it is for.
            Some(duty) if *verdict != Verdict::InsufficientFee => self.duty_refused(duty, verdict, bytes),
            _ => self.sizing.refused(verdict, bytes),
        }
    }
}

/// Whether something of a transaction is on chain, by what the contract has.
fn took(ending: &Ending) -> bool {
    match ending {
        Ending::Reports(fates) => fates.iter().any(|(_, fate)| is_on_chain(fate)),
        Ending::Register(fates) => fates
            .iter()
            .any(|(_, fate)| matches!(fate, RegisterFate::OnChain(_))),
        Ending::Nothing => false,
    }
}

fn is_on_chain(fate: &Fate) -> bool {
    matches!(fate, Fate::Ended(EndedAs::OnChain, _))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hpc_chain::hash::TxHash;
    use hpc_chain::settle::{Action, EndpointId, Inclusion, SignedTx};
    use hpc_schema::code::Code;
    use hpc_schema::id::{ClusterId, NodeId};
    use hpc_schema::time::UnixSeconds;

    use super::super::tests::{driver, priced};
    use super::*;
    use crate::db;
    use crate::ops::ReportLabels;
    use crate::registry::scene::view;
    use crate::spool::{self, Accept, Member, Spool};

    /// A transaction of reports is under way, signed at block 10, and at block 11 its number was used.
    async fn used(driver: &mut Driver) -> (BatchId, TxHash) {
        let mut tx = driver.store.begin().await.unwrap();
        let batch = store::open_batch(&mut tx, "relayer", Kind::Reports, 1)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let now = clock::now_ms();
        let mut take = |input| step(&mut driver.state, &driver.machine, now, input);
        take(Input::Head {
            endpoint: EndpointId(0),
            height: 10,
            block_time_ms: now,
        });
        take(Input::Submit { batch });
        let account = |height, sequence| Input::Account {
            height,
            account_number: 1,
            sequence,
        };
        let asked = take(account(10, 5));
        let [Action::Sign(request)] = asked[..] else {
            panic!("{asked:?}")
        };
        let bytes = vec![1];
        let hash = TxHash::of(&bytes);
        take(Input::Signed(SignedTx { request, bytes }));
        take(account(11, 6));
        (batch, hash)
    }

    #[tokio::test]
    async fn what_another_process_overtook_goes_again_as_it_is_and_what_failed_unseen_smaller() {
        for (gone, items, short_of_gas) in [(vec![], 16, false), (vec![11], 8, true)] {
            let dir = tempfile::tempdir().unwrap();
            let mut driver = driver(dir.path()).await;
            let (batch, hash) = used(&mut driver).await;
            let scanned = Input::Scanned {
                hash,
                from: 11,
                to: 11,
                inclusions: Vec::new(),
                gone,
                unread: false,
            };
            driver.feed(scanned).await.unwrap();
            // A restart comes between.
            let known = store::load_state(driver.store.reader(), &driver.signers.name).await;
            (driver.state, driver.ending) = (known.unwrap().unwrap(), None);
            driver.feed(Input::Restarted).await.unwrap();
            let end = End::Consumed {
                height: 11,
                overtaken: !short_of_gas,
            };
            assert_eq!(driver.ending, Some((batch, end)));
            driver.finish().await.unwrap();
            assert!(driver.state.is_idle());
            let learnt = (driver.sizing.items(16), driver.sizing.is_short_of_gas());
            assert_eq!(learnt, (items, short_of_gas));
            // Neither at once.
            assert!(driver.backoff_until > clock::steady());
        }
    }

    #[tokio::test]
    async fn a_price_that_an_end_has_raised_is_stored_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = priced(dir.path(), "0.01stake", "0.1stake").await;
        let (batch, _) = used(&mut driver).await;
        driver.refusal = Some(Verdict::InsufficientFee);
        driver.sizing.asks("0.04stake".parse().unwrap());
        driver.ending = Some((batch, End::Expired { height: 40 }));
        driver.finish().await.unwrap();
        let stored = store::learnt_prices(driver.store.reader()).await.unwrap();
        assert_eq!(stored["relayer"].to_string(), "0.04stake");
    }

    #[tokio::test]
    async fn what_another_process_relayed_first_says_nothing_of_the_transaction_that_never_ran() {
        for (overtaken, short_of_gas) in [(true, true), (false, false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut driver = driver(dir.path()).await;
            driver.sizing.refused(&Verdict::OutOfGas, 1);
            let end = End::Consumed { height: 9, overtaken };
            driver.after(Kind::Reports, None, (&end, true), 1);
            assert_eq!(driver.sizing.is_short_of_gas(), short_of_gas);
            assert_eq!(driver.backoff_until > clock::steady(), overtaken);
        }
    }

    #[tokio::test]
    async fn a_report_that_was_alone_in_a_transaction_that_another_process_overtook_is_not_at_fault() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = driver(dir.path()).await;
        driver.sizing.refused(&Verdict::OutOfGas, 1);
        let alone = Member::of_node("node-a", 1, 2);
        let ending = Ending::Reports(vec![(alone, Fate::Returned)]);
        for (overtaken, apart) in [(true, 0), (false, 1)] {
            driver.after_reports(&ending, &End::Consumed { height: 9, overtaken });
            assert_eq!(driver.apart.len(), apart);
        }
    }

    /// Report 2 of each of these nodes is in the transaction.
    async fn bound(driver: &Driver, spool: &Spool, batch: BatchId, nodes: &[&str]) {
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let nodes: Vec<NodeId> = nodes.iter().map(|name| name.parse().unwrap()).collect();
        for node in &nodes {
            let of = (cluster.clone(), node.clone());
            let report = Accept::new(of, (1, 2), ([1; 70], [2; 64]), 7);
            assert!(spool.accept(report).await.unwrap().accepted);
        }
        let mut tx = driver.store.begin().await.unwrap();
        let all: Vec<_> = nodes.iter().map(|node| (&cluster, node)).collect();
        let found = spool::waiting_of(&mut tx, &all).await.unwrap();
        let members: Vec<Member> = found.rows.into_iter().map(|(member, _)| member).collect();
        spool::bind(&mut tx, batch.0, &members).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn damage(driver: &Driver, sql: &'static str) {
        let mut tx = driver.store.begin().await.unwrap();
        let done = db::query(sql).execute(&mut *tx).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_report_that_cannot_go_again_ends_as_refused_and_is_not_put_apart() {
        for (lost, word, code) in [(true, "refused", "unavailable"), (false, "returned", "")] {
            let dir = tempfile::tempdir().unwrap();
            let mut driver = driver(dir.path()).await;
            let (cluster, seen) = ("hpc-cluster-1".parse().unwrap(), view());
            let node = seen.node_id.clone();
            driver.registry.set_node(&cluster, seen, 1, UnixSeconds(1_000));
            let (batch, hash) = used(&mut driver).await;
            let (spool, task) = Spool::start(driver.store.clone(), None, Arc::default());
            driver.backlog = spool.backlog();
            bound(&driver, &spool, batch, &["node-a"]).await;
            if lost {
                damage(&driver, "UPDATE batch_report SET signature = x'02'").await;
            }
            let failed = Inclusion {
                hash,
                height: 11,
                code: 7,
                codespace: "other".to_owned(),
                log: String::new(),
                gas_used: 0,
            };
            driver.ending = Some((batch, End::Failed(failed)));
            driver.finish().await.unwrap();
            assert!(driver.ending.is_none());
            let labels = ReportLabels { end: word, code };
            let counted = driver.metrics.reports.get_or_create(&labels).get();
            assert_eq!(counted, 1, "{word}");
            let known = driver.registry.node(&cluster, &node).unwrap();
            assert_eq!(known.refused, lost.then_some((Code::Unavailable, 2)));
            assert_eq!(driver.apart.len(), usize::from(!lost));
            drop((spool, driver));
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_keeps_neither_the_start_nor_the_end_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = driver(dir.path()).await;
        let (batch, _) = used(&mut driver).await;
        let (spool, task) = Spool::start(driver.store.clone(), None, Arc::default());
        driver.backlog = spool.backlog();
        bound(&driver, &spool, batch, &["node-a", "node-b"]).await;
        damage(&driver, "UPDATE batch_report SET epoch = -1 WHERE item = 0").await;
        driver.claim_outstanding().await.unwrap();
        assert!(spool.mended().unwrap().contains("batch_report.epoch of item 0"));
        damage(&driver, "UPDATE batch_report SET queued_at = -1 WHERE item = 1").await;
        driver.ending = Some((batch, End::Expired { height: 40 }));
        driver.finish().await.unwrap();
        assert!(driver.ending.is_none());
        assert!(
            spool
                .mended()
                .unwrap()
                .contains("batch_report.queued_at of item 1")
        );
        let left = spool::depth(driver.store.reader()).await.unwrap();
        assert_eq!((left.waiting, left.bound), (1, 0));
        drop((spool, driver));
        task.await.unwrap();
    }
}
