//! The provider's orders: taken from the gateway's answer, kept, carried out, acknowledged.

mod carry_out;
mod take;
mod task_key;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hpc_schema::command::{Acknowledgement, CommandType, MAX_ACKNOWLEDGEMENTS};
use tokio::sync::mpsc;

use crate::command::{End, Entry, Journal, OrderedDrain, Outcome, Work};
use crate::state::{OrderStatus, StateDir};

/// Orders that `status` shows.
const SHOWN: usize = 5;

/// Orders that are carried out one after the other; those of another lane are not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// Drain and resume: they talk to Slurm.
    Turn,
    /// A download may take as long as a server likes.
    Update,
    Other,
}

/// All lanes.
const LANES: usize = 3;

fn lane(kind: CommandType) -> Lane {
    match kind {
        CommandType::Drain | CommandType::Resume => Lane::Turn,
        CommandType::UpdateAgent => Lane::Update,
        CommandType::RunDiagnostic | CommandType::Shutdown => Lane::Other,
    }
}

/// An order that is about to begin.
#[derive(Debug)]
struct Begins {
    /// As it was before.
    entry: Entry,
    work: Work,
    /// The drain that was in force before.
    drain: Option<OrderedDrain>,
}

/// Orders and how far they are.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) journal: Journal,
    /// The journal holds what the disk does not.
    unsaved: bool,
    /// What cannot be acted on is not kept: it must not stand in a genuine order's way.
    refusals: Vec<Acknowledgement>,
    /// When those were taken that the disk has not confirmed.
    taken: BTreeMap<String, u64>,
    /// What is begun once the disk holds the journal that says so.
    begins: Option<Begins>,
    /// The disk has not taken the journal: it is tried again then.
    save_at: Option<Instant>,
    /// The orders that threads carry out, one a lane at most.
    running: BTreeMap<String, Lane>,
    /// Orders that are not begun again before then.
    again_at: BTreeMap<String, Instant>,
    /// Where threads put how an order ended.
    ends: mpsc::Sender<(String, End)>,
    ended: mpsc::Receiver<(String, End)>,
    stops: bool,
    relaunches: bool,
}

impl Orders {
    /// As kept. A journal that cannot be read counts as lost: what would do harm twice is then refused if it is older.
    pub(super) fn open(state: &StateDir, now: u64) -> Self {
        let journal = Journal::load(state, now).unwrap_or_else(|e| {
            tracing::error!("the journal of orders is lost: {e}");
            Journal::new(now)
        });
        let (ends, ended) = mpsc::channel(LANES);
        Self {
            journal,
            unsaved: false,
            refusals: Vec::new(),
            taken: BTreeMap::new(),
            begins: None,
            save_at: None,
            running: BTreeMap::new(),
            again_at: BTreeMap::new(),
            ends,
            ended,
            stops: false,
            relaunches: false,
        }
    }

    /// Whether the provider has this node drained.
    pub(super) fn drained(&self) -> bool {
        self.journal.drain.is_some()
    }

    /// Whether the provider has ordered the agent to stop.
    pub(super) fn stops(&self) -> bool {
        // What is not kept would stop the next life as well.
        self.stops && !self.unsaved
    }

    /// Whether another version is to run from now on.
    pub(super) fn relaunches(&self) -> bool {
        self.relaunches
    }

    /// Whether a thread talks to Slurm: health waits.
    pub(super) fn talks_to_slurm(&self) -> bool {
        self.running.values().any(|lane| *lane == Lane::Turn)
    }

    /// The next order whose lane is free and whose time has come.
    fn next(&self) -> Option<&Entry> {
        self.journal.next(|e| {
            let free = !self.running.values().any(|running| *running == lane(e.kind));
            free && !self.again_at.contains_key(&e.command_id)
        })
    }

    /// When an order, or keeping them, is tried again.
    pub(super) fn again_at(&self) -> Option<Instant> {
        self.again_at.values().copied().chain(self.save_at).min()
    }

    /// Whether the gateway should hear something soon.
    pub(super) fn has_news(&self) -> bool {
        !self.refusals.is_empty() || self.journal.has_news()
    }

    /// The order that a thread has carried out.
    pub(super) async fn ended(&mut self) -> Option<(String, End)> {
        self.ended.recv().await
    }

    /// What the next heartbeat says of orders.
    pub(super) fn acknowledgements(&self) -> Vec<Acknowledgement> {
        let kept = self.journal.acknowledgements();
        kept.into_iter()
            .chain(self.refusals.iter().cloned())
            .take(MAX_ACKNOWLEDGEMENTS)
            .collect()
    }

    /// The last orders, for `status`.
    pub(super) fn shown(&self) -> Vec<OrderStatus> {
        let of = |e: &Entry| {
            let o = e.outcome.as_ref();
            OrderStatus {
                command_id: e.command_id.clone(),
                kind: e.kind.as_str().to_owned(),
                at: o.map_or(e.taken_at, |o| o.at),
                status: o.map_or("accepted", |o| o.status.as_str()).to_owned(),
                detail: o.and_then(|o| o.detail.clone()),
            }
        };
        let mut last: Vec<_> = self.journal.entries().rev().take(SHOWN).map(of).collect();
        last.reverse();
        last
    }
}

/// How an order was begun.
pub(super) enum Begun {
    /// It has ended already.
    Ended(Outcome),
    /// It takes its time.
    OnThread(Work),
    /// It is looked at again then.
    Later(Duration),
}
