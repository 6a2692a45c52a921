//! Orders are carried out: one after the other in each lane.

use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::command::{AcknowledgementStatus, CommandType, Parameters};
use serde_json::value::RawValue;

use super::{Begins, Begun, lane};
use crate::clock::instant;
use crate::command::{End, Entry, OrderedDrain, Outcome, Work, boot, is_another};
use crate::config::Shutdown;
use crate::health::OutOfService;
use crate::helper::Helper;
use crate::probe::slurm::{By, Control};
use crate::run::Agent;

/// First wait before an order, or keeping it, is tried again; that of an order doubles.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts before an order has failed: about ten minutes.
const ATTEMPTS: u32 = 8;

impl Agent {
    /// Begins what can be begun: an order that waits, or takes long, holds up no order of another lane.
    pub(in crate::run) fn step_orders(&mut self) {
        let now = instant();
        self.orders.again_at.retain(|_, at| now < *at);
        // What was begun, and how it ended, must be known after a restart.
        if self.orders.unsaved && self.orders.save_at.is_none_or(|at| now >= at) {
            self.keep_orders();
        }
        if self.orders.relaunches || self.service.talks() {
            return;
        }
        while !self.orders.unsaved && !self.orders.stops {
            if let Some(begins) = self.orders.begins.take() {
                self.start(begins);
                continue;
            }
            let Some(entry) = self.orders.next().cloned() else {
                return;
            };
            let now = self.clock.seconds();
            if self.overdue(&entry, now) {
                continue;
            }
            let drain = self.orders.journal.drain.clone();
            self.orders.journal.begin(&entry.command_id);
            match self.begin_order(&entry, now) {
                Begun::Ended(outcome) => self.finish_order(&entry.command_id, outcome),
                Begun::Later(pause) => self.later(&entry.command_id, pause),
                Begun::OnThread(work) => {
                    // Not kept is not begun.
                    self.orders.begins = Some(Begins { entry, work, drain });
                    self.orders.unsaved = true;
                    self.keep_orders();
                }
            }
        }
    }

    /// Whether its deadline has passed: then it ends.
    fn overdue(&mut self, entry: &Entry, now: u64) -> bool {
        let over = now > entry.deadline;
        if over {
            let text = "its deadline passed before it could be carried out";
            let outcome = if entry.attempts == 0 {
                Outcome::refused(now, Code::TaskExpired, text)
            } else {
                Outcome::failed(now, text)
            };
            self.finish_order(&entry.command_id, outcome);
        }
        over
    }

    /// The disk holds that it begins; meanwhile its time may have passed, or another order have taken its place.
    fn start(&mut self, begins: Begins) {
        let Begins {
            mut entry,
            work,
            drain,
        } = begins;
        let open = |e: &&Entry| e.command_id == entry.command_id && e.outcome.is_none();
        let Some(deadline) = self.orders.journal.entries().find(open).map(|e| e.deadline) else {
            return;
        };
        entry.deadline = deadline;
        let entry = &entry;
        if self.overdue(entry, self.clock.seconds()) {
            let ours = |d: &OrderedDrain| d.command_id == entry.command_id;
            if entry.attempts == 0 && self.orders.journal.drain.as_ref().is_some_and(ours) {
                self.orders.journal.drain = drain;
                self.orders.unsaved = true;
                self.keep_orders();
            }
            return;
        }
        // What Slurm is told may have changed since.
        let work = match work {
            Work::Drain(_, reason) => Work::Drain(self.control(), reason),
            Work::Resume(_) => Work::Resume(self.control()),
            other => other,
        };
        if let Err(e) = self.start_thread(entry, work) {
            tracing::warn!(command = %entry.command_id, "order not begun, no thread: {e}");
            self.later(&entry.command_id, PATIENCE);
        }
    }

    fn later(&mut self, id: &str, pause: Duration) {
        let at = instant().checked_add(pause);
        self.orders.again_at.extend(at.map(|at| (id.to_owned(), at)));
    }

    fn start_thread(&mut self, entry: &Entry, work: Work) -> std::io::Result<()> {
        let (sender, name) = (self.orders.ends.clone(), entry.command_id.clone());
        // One a lane: there is room for its end.
        work.begin(move |end| drop(sender.try_send((name, end))))?;
        self.orders
            .running
            .insert(entry.command_id.clone(), lane(entry.kind));
        Ok(())
    }

    /// Draining and resuming in Slurm, beside the drain of health.
    fn control(&self) -> Box<Control> {
        let control = Control::new(self.config.slurm.clone(), &self.config.roots, By::Order)
            .by_helper(self.config.commands.helper.clone());
        let health = self.service.out().map(OutOfService::why);
        Box::new(control.but(health.map(|why| (By::Health, why))))
    }

    fn begin_order(&mut self, entry: &Entry, now: u64) -> Begun {
        let parameters = RawValue::from_string(entry.parameters.clone())
            .map_err(|e| e.to_string())
            .and_then(|raw| Parameters::parse(entry.kind, &raw).map_err(|e| e.to_string()));
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err(e) => return Begun::Ended(Outcome::failed(now, &e)),
        };
        match parameters {
            Parameters::Drain(reason) => {
                let text = reason.reason.clone().unwrap_or_default();
                let work = Work::Drain(self.control(), text);
                // At once: a restart must know of it, whatever Slurm says.
                self.orders.journal.drain = Some(OrderedDrain {
                    command_id: entry.command_id.clone(),
                    since: now,
                    reason: reason.reason,
                });
                Begun::OnThread(work)
            }
            Parameters::Resume(_) => Begun::OnThread(Work::Resume(self.control())),
            Parameters::Shutdown(reason) => match &self.config.commands.shutdown {
                Shutdown::Refuse => {
                    let text = "commands.shutdown of this node is refuse";
                    Begun::Ended(Outcome::refused(now, Code::WrongMode, text))
                }
                Shutdown::Host(program) => {
                    let boot = boot(&self.config.roots.proc);
                    // Whether a host was told that has not been down since is not known, and being told twice does it
                    // no harm; one that has been down is not switched off a second time.
                    if entry.attempts > 0 {
                        let both = entry.boot.as_deref().zip(boot.as_deref());
                        let been_down = both.and_then(|(before, now)| is_another(before, now));
                        if been_down == Some(true) {
                            let text = "the host was told to shut down, and is up again";
                            return Begun::Ended(Outcome::done(now, text));
                        }
                        if been_down.is_none() {
                            let text = "was begun before, and whether the host has been down since cannot be read (/proc/sys/kernel/random/boot_id, and /proc/1, which hidepid hides); look whether it went down, and order it again if not";
                            return Begun::Ended(Outcome::failed(now, text));
                        }
                    }
                    self.orders.journal.begin_in(&entry.command_id, boot);
                    let helper = Helper::at(&self.config.commands.helper);
                    Begun::OnThread(Work::Poweroff(helper, program.clone()))
                }
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
    pub(in crate::run) fn order_ended(&mut self, id: &str, end: End) {
        self.orders.running.remove(id);
        let now = self.clock.seconds();
        let entry = self.orders.journal.entries().find(|e| e.command_id == id);
        let Some(entry) = entry.cloned() else { return };
        let attempts = entry.attempts;
        let outcome = match end {
            End::Done(text) => Outcome::done(now, &text),
            End::Found(diagnostic, text, mut report) => {
                if let Some(report) = report.as_object_mut() {
                    report.insert("at".to_owned(), now.into());
                }
                let done = Outcome::done(now, &text).with_report(&report);
                self.keep_report(diagnostic, now, report);
                done
            }
            End::Failed(text) => Outcome::failed(now, &text),
            End::Again(text) if attempts >= ATTEMPTS => Outcome::failed(now, &text),
            End::Again(text) => {
                let pause = PATIENCE.saturating_mul(1u32.checked_shl(attempts).unwrap_or(u32::MAX) / 2);
                tracing::warn!(command = %id, "order not carried out yet, again in {pause:?}: {text}");
                self.later(id, pause);
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
}
