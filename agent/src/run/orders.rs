//! The provider's orders: taken from the gateway's answer, kept, carried out one after the other, acknowledged.

use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::command::{
    Acknowledgement, AcknowledgementStatus, Command, CommandType, MAX_ACKNOWLEDGEMENTS, Parameters,
};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Agent;
use crate::clock::instant;
use crate::command::{Diagnostic, End, Entry, Journal, OrderedDrain, Outcome, Taken, Work, refused, verify};
use crate::config::Shutdown;
use crate::probe::slurm::Control;
use crate::state::{OrderStatus, StateDir};

/// Orders that one answer may bring; the gateway keeps no more for a node.
const MOST: usize = 16;
/// Orders that `status` shows.
const SHOWN: usize = 5;
/// First wait before an order is tried again; it doubles.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts before an order has failed: about ten minutes.
const ATTEMPTS: u32 = 8;

/// Orders and how far they are.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) journal: Journal,
    /// The journal holds what the disk does not.
    unsaved: bool,
    /// What cannot be acted on is not kept: it must not stand in a genuine order's way.
    refusals: Vec<Acknowledgement>,
    /// The order that a thread carries out.
    running: Option<String>,
    /// Not before then.
    again_at: Option<Instant>,
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
        let (ends, ended) = mpsc::channel(1);
        Self {
            journal,
            unsaved: false,
            refusals: Vec::new(),
            running: None,
            again_at: None,
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
        self.stops
    }

    /// Whether another version is to run from now on.
    pub(super) fn relaunches(&self) -> bool {
        self.relaunches
    }

    /// When an order is tried again.
    pub(super) fn again_at(&self) -> Option<Instant> {
        self.again_at
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

impl Agent {
    /// Takes what the gateway's answer orders.
    pub(super) fn take_orders(&mut self, commands: &[Command]) {
        let now = self.clock.seconds();
        for command in commands.iter().take(MOST) {
            let id = &command.command_id;
            let kind = match verify(command, &self.registration, now) {
                Ok((kind, _)) => kind,
                Err(refusal) => {
                    tracing::warn!(command = %id, code = refusal.code.as_str(), "order refused: {}", refusal.message);
                    let known = self.orders.refusals.iter().any(|a| a.command_id == *id);
                    if !known && self.orders.refusals.len() < MOST {
                        self.orders.refusals.push(refused(id, &refusal));
                    }
                    continue;
                }
            };
            match self.orders.journal.take(command, kind, now) {
                Taken::Known => self.orders.unsaved = true,
                Taken::Full => {
                    tracing::error!(command = %id, "too many orders wait; this one is not taken yet");
                }
                Taken::New => match self.orders.journal.save(&self.state) {
                    Ok(()) => tracing::info!(command = %id, kind = %kind, "order taken"),
                    Err(e) => {
                        // It is told again with the next answer.
                        self.orders.journal.drop_newest();
                        self.warn_once(
                            "orders",
                            &format!("orders cannot be kept, and are not begun: {e}"),
                        );
                    }
                },
            }
        }
        self.keep_orders();
    }

    /// The gateway has taken these acknowledgements.
    pub(super) fn orders_heard(&mut self, told: &[Acknowledgement]) {
        self.orders
            .refusals
            .retain(|r| !told.iter().any(|t| t.command_id == r.command_id));
        if self.orders.journal.heard(told) {
            self.orders.unsaved = true;
            self.keep_orders();
        }
    }

    /// Begins the next order, unless one is under way.
    pub(super) fn step_orders(&mut self) {
        if self.orders.relaunches
            || self.orders.running.is_some()
            || self.orders.again_at.is_some_and(|at| instant() < at)
        {
            return;
        }
        self.orders.again_at = None;
        while let Some(entry) = self.orders.journal.next().cloned() {
            let now = self.clock.seconds();
            if now > entry.deadline {
                let text = "its deadline passed before it could be carried out";
                let outcome = if entry.attempts == 0 {
                    Outcome::refused(now, Code::TaskExpired, text)
                } else {
                    Outcome::failed(now, text)
                };
                self.finish_order(&entry.command_id, outcome);
                continue;
            }
            self.orders.journal.begin(&entry.command_id);
            match self.begin_order(&entry, now) {
                Begun::Ended(outcome) => self.finish_order(&entry.command_id, outcome),
                Begun::Later(pause) => {
                    self.orders.again_at = instant().checked_add(pause);
                    return;
                }
                Begun::OnThread(work) => {
                    self.orders.unsaved = true;
                    self.keep_orders();
                    self.start_thread(entry.command_id, work);
                    return;
                }
            }
        }
    }

    fn start_thread(&mut self, id: String, work: Work) {
        let (sender, name) = (self.orders.ends.clone(), id.clone());
        // One at a time: there is room for its end.
        let started = work.begin(move |end| drop(sender.try_send((name, end))));
        match started {
            Ok(()) => self.orders.running = Some(id),
            Err(e) => self.order_ended(&id, End::Again(format!("no thread: {e}"))),
        }
    }

    fn begin_order(&mut self, entry: &Entry, now: u64) -> Begun {
        let parameters = RawValue::from_string(entry.parameters.clone())
            .map_err(|e| e.to_string())
            .and_then(|raw| Parameters::parse(entry.kind, &raw).map_err(|e| e.to_string()));
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err(e) => return Begun::Ended(Outcome::failed(now, &e)),
        };
        let control = || Box::new(Control::new(self.config.slurm.clone(), &self.config.roots));
        match parameters {
            Parameters::Drain(reason) => {
                let text = reason.reason.clone().unwrap_or_default();
                let work = Work::Drain(control(), text);
                // At once: a restart must know of it, whatever Slurm says.
                self.orders.journal.drain = Some(OrderedDrain {
                    command_id: entry.command_id.clone(),
                    since: now,
                    reason: reason.reason,
                });
                Begun::OnThread(work)
            }
            Parameters::Resume(_) => Begun::OnThread(Work::Resume(control())),
            Parameters::Shutdown(reason) => match &self.config.commands.shutdown {
                Shutdown::Refuse => {
                    let text = "commands.shutdown of this node is refuse";
                    Begun::Ended(Outcome::refused(now, Code::WrongMode, text))
                }
                Shutdown::Host(program) => Begun::OnThread(Work::Poweroff(program.clone())),
                Shutdown::Agent => {
                    let why = reason.reason.unwrap_or_default();
                    tracing::warn!("the provider orders this agent to stop: {why}");
                    self.orders.stops = true;
                    Begun::Ended(Outcome::done(now, "the agent stops"))
                }
            },
            Parameters::UpdateAgent(wanted) => self.begin_update(entry, &wanted, now),
            Parameters::RunDiagnostic(run) => self.diagnose(&run.name, now),
        }
    }

    /// A thread has carried out an order, or has not.
    pub(super) fn order_ended(&mut self, id: &str, end: End) {
        self.orders.running = None;
        let now = self.clock.seconds();
        let entry = self.orders.journal.entries().find(|e| e.command_id == id);
        let Some(entry) = entry.cloned() else { return };
        let attempts = entry.attempts;
        let outcome = match end {
            End::Done(text) => {
                if entry.kind == CommandType::RunDiagnostic {
                    self.keep_report(Diagnostic::Storage, now, &json!({"at": now, "result": text}));
                }
                Outcome::done(now, &text)
            }
            End::Failed(text) => Outcome::failed(now, &text),
            End::Again(text) if attempts >= ATTEMPTS => Outcome::failed(now, &text),
            End::Again(text) => {
                let pause = PATIENCE.saturating_mul(1u32.checked_shl(attempts).unwrap_or(u32::MAX) / 2);
                tracing::warn!(command = %id, "order not carried out yet, again in {pause:?}: {text}");
                self.orders.again_at = instant().checked_add(pause);
                return;
            }
            End::Restart => {
                tracing::warn!("another version runs from now on");
                self.orders.relaunches = true;
                return;
            }
        };
        self.finish_order(id, outcome);
        self.step_orders();
    }

    fn finish_order(&mut self, id: &str, outcome: Outcome) {
        let entry = self.orders.journal.entries().find(|e| e.command_id == id);
        let kind = entry.map(|e| e.kind);
        let detail = outcome.detail.clone().unwrap_or_default();
        tracing::info!(command = %id, status = outcome.status.as_str(), "order ended: {detail}");
        if kind == Some(CommandType::Resume) && outcome.status == AcknowledgementStatus::Done {
            self.orders.journal.drain = None;
        }
        self.orders.journal.finish(id, outcome);
        self.orders.unsaved = true;
        self.keep_orders();
    }

    /// Writes the journal, if the disk does not hold it yet.
    fn keep_orders(&mut self) {
        self.status.drain.clone_from(&self.orders.journal.drain);
        self.status.orders = self.orders.shown();
        if !self.orders.unsaved {
            return;
        }
        match self.orders.journal.save(&self.state) {
            Ok(()) => {
                self.orders.unsaved = false;
                self.over("orders", "orders can be kept again");
            }
            Err(e) => self.warn_once("orders", &format!("orders cannot be kept: {e}")),
        }
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
