//! Taking reports in by the journal: acknowledged once they are there, in the database a moment later.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::accept::{Accept, Accepted};
use super::apply::{Handover, apply, noted, one_by_one};
use super::gone::{Forgotten, Gone};
use super::group::{Made, Queued, group, tell, turn_away};
use super::journal::{Applied, Draft, Journal, read_all};
use super::mend::{mend, mend_all};
use super::{journal, rows};
use crate::fault;
use crate::settle::Wake;
use crate::store::{Store, StoreError};

/// Epoch and sequence of the newest accepted report.
type Newest = (u64, u32);

/// The journal with what decides on the next report: only one above the newest of its node is taken.
#[derive(Debug)]
pub struct Log {
    journal: Journal,
    newest: HashMap<ClusterId, HashMap<NodeId, Newest>>,
    /// Nodes that need not be there any more.
    forgotten: Forgotten,
    /// The next group; its memory is kept.
    draft: Draft,
    /// A row that could not be read at the start and was written anew.
    mended: Option<String>,
}

/// What was the newest of a node before one of a group.
struct Before<'r> {
    of: &'r Accept,
    newest: Option<Newest>,
}

impl Log {
    /// Opens the journal beside the database, which takes in what an earlier process has left there; none for a store that
    /// several gateways share.
    ///
    /// # Errors
    /// If the store or the journal cannot be used.
    pub async fn open(store: &Store) -> Result<Option<Self>, StoreError> {
        let Some(dir) = store.folder() else {
            return Ok(None);
        };
        let dir = dir.to_owned();
        let on_record = noted(store.reader()).await?;
        let opened = spawn_blocking(move || Journal::open(&dir, on_record));
        let (journal, groups) = opened.await.map_err(io::Error::other)??;
        let mut mended = None;
        if let Some(last) = groups.last() {
            let mut reports = Vec::new();
            for group in &groups {
                let broken = || {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the intake journal is of another version; start the version that wrote it once, or restore a backup",
                    )
                };
                reports.extend(read_all(&group.entries).ok_or_else(broken)?);
            }
            match one_by_one(store, reports.iter(), last.number).await {
                Err(e) if e.is_unreadable() => {
                    mended = mend(store, reports.iter(), true).await?;
                    one_by_one(store, reports.iter(), last.number).await?;
                }
                taken => taken?,
            }
            journal.applied().set(last.number);
            tracing::info!(
                reports = reports.len(),
                "what was accepted before is taken in from the journal"
            );
        }
        // A node of which nothing has come since has nothing in the journal either.
        mended = mend_all(store).await?.or(mended);
        let mut newest: HashMap<_, HashMap<_, _>> = HashMap::new();
        for i in rows::intakes(store.reader()).await? {
            let of = newest.entry(i.cluster_id).or_default();
            of.insert(i.node_id, (i.epoch, i.acked_sequence));
        }
        Ok(Some(Self {
            journal,
            newest,
            forgotten: Forgotten::default(),
            draft: Draft::default(),
            mended,
        }))
    }

    /// Where it is told of nodes that need not be remembered.
    pub(super) fn forgotten(&self) -> Forgotten {
        self.forgotten.clone()
    }

    /// Takes in what comes; ends when all of it is in the database.
    pub(super) async fn write(
        mut self,
        store: Store,
        rx: mpsc::Receiver<Queued>,
        wake: Arc<Wake>,
        handover: Arc<Handover>,
    ) {
        let applied: Applied = self.journal.applied();
        if let Some(what) = self.mended.take() {
            handover.mended(what);
        }
        let applying = apply(store, Arc::clone(&handover), applied, wake);
        tokio::join!(applying, self.take(rx, &handover));
    }

    async fn take(mut self, mut rx: mpsc::Receiver<Queued>, handover: &Handover) {
        while let Some((reports, replies)) = group(&mut rx).await {
            if handover.is_stuck() {
                turn_away(
                    replies,
                    &"the store has taken nothing in for a minute; the lines before say why",
                );
                continue;
            }
            for gone in self.forgotten.take() {
                self.forget(&gone);
            }
            let (answers, before) = self.judge(&reports);
            if self.draft.is_empty() {
                tell(replies, answers);
                continue;
            }
            // The disk is waited for on a thread of its own.
            let Self {
                mut journal,
                mut draft,
                newest,
                forgotten,
                mended,
            } = self;
            let written = spawn_blocking(move || {
                let written = journal.write(&mut draft);
                (journal, draft, written)
            });
            let Ok((journal, draft, written)) = written.await else {
                tracing::error!("the thread that writes the intake journal has ended");
                return handover.end();
            };
            self = Self {
                journal,
                draft,
                newest,
                forgotten,
                mended,
            };
            match written {
                Ok(number) => {
                    fault::point("spool.committed");
                    let new = reports.into_iter().zip(&answers).filter(|(_, a)| a.accepted);
                    handover.add(number, self.journal.is_filling(), new.map(|(report, _)| report));
                    tell(replies, answers);
                }
                Err(e) => {
                    self.undo(before);
                    turn_away(replies, &e);
                }
            }
        }
        handover.end();
    }

    /// What becomes of each report, the accepted ones as entries; and how to take that back.
    fn judge<'r>(&mut self, reports: &'r [Made]) -> (Vec<Accepted>, Vec<Before<'r>>) {
        self.draft.clear();
        let mut answers = Vec::with_capacity(reports.len());
        let mut before = Vec::with_capacity(reports.len());
        for report in reports {
            let now = (report.epoch, report.sequence);
            let newest = self.renew(report, now);
            let accepted = newest.is_none_or(|newest| now > newest);
            if accepted {
                self.draft.add(report);
                before.push(Before { of: report, newest });
            }
            answers.push(Accepted {
                accepted,
                sequence_ack: if accepted {
                    report.sequence
                } else {
                    newest.map_or(0, |(_, acked)| acked)
                },
            });
        }
        (answers, before)
    }

    /// What was the newest of a node, in whose place this one is now if it is above it: found in one look.
    fn renew(&mut self, of: &Accept, now: Newest) -> Option<Newest> {
        let known = self
            .newest
            .get_mut(&of.cluster_id)
            .and_then(|nodes| nodes.get_mut(&of.node_id));
        if let Some(known) = known {
            let newest = *known;
            *known = newest.max(now);
            return Some(newest);
        }
        self.set(of, Some(now));
        None
    }

    fn set(&mut self, of: &Accept, newest: Option<Newest>) {
        let nodes = match self.newest.get_mut(&of.cluster_id) {
            Some(nodes) => nodes,
            None => self.newest.entry(of.cluster_id.clone()).or_default(),
        };
        match (nodes.get_mut(&of.node_id), newest) {
            (Some(known), Some(newest)) => *known = newest,
            (None, Some(newest)) => drop(nodes.insert(of.node_id.clone(), newest)),
            (_, None) => drop(nodes.remove(&of.node_id)),
        }
    }

    /// A node is gone, unless it has registered anew since.
    fn forget(&mut self, gone: &Gone) {
        let Some(nodes) = self.newest.get_mut(&gone.cluster_id) else {
            return;
        };
        if nodes
            .get(&gone.node_id)
            .is_some_and(|(epoch, _)| *epoch <= gone.epoch)
        {
            nodes.remove(&gone.node_id);
        }
        if nodes.is_empty() {
            self.newest.remove(&gone.cluster_id);
        }
    }

    /// Nothing of a group was written.
    fn undo(&mut self, before: Vec<Before<'_>>) {
        for Before { of, newest } in before.into_iter().rev() {
            self.set(of, newest);
        }
    }
}

/// What the journal holds and the database does not, as a file of the journal for a copy of the database that is made next;
/// empty if there is nothing, or no journal.
///
/// # Errors
/// If the store or a file cannot be read.
pub async fn unapplied(store: &Store) -> Result<Vec<u8>, StoreError> {
    match store.folder() {
        Some(dir) => Ok(journal::unapplied(dir, noted(store.reader()).await?)?),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
