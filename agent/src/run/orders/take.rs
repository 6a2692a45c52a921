//! Orders are taken from the gateway's answer, and kept.

use hpc_schema::command::{Acknowledgement, Command, CommandType};

use super::carry_out::PATIENCE;
use crate::clock::instant;
use crate::command::{Journal, Taken, refused, verify};
use crate::run::Agent;

/// Orders that one answer may bring; the gateway keeps no more for a node, and one of the chain beside them.
const MOST: usize = 17;

impl Agent {
    /// Takes what the gateway's answer orders.
    pub(in crate::run) fn take_orders(&mut self, commands: &[Command]) {
        if commands.is_empty() {
            self.orders.taken.clear();
            return self.keep_orders();
        }
        if !self.keeps() {
            // They are told again with the next answer.
            self.warn_once(
                "orders",
                "orders cannot be kept, and are not begun: the state directory does not answer",
            );
            return;
        }
        let now = self.clock.seconds();
        self.orders
            .taken
            .retain(|id, _| commands.iter().any(|c| c.command_id == *id));
        let before = self.orders.journal.clone();
        let mut new = Vec::new();
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
            // The same words as the last time, so that a slow disk's late answer is about them.
            let taken = self.orders.taken.get(id).copied().unwrap_or(now);
            match self.orders.journal.take(command, kind, taken) {
                Taken::Known => self.orders.unsaved = true,
                Taken::Full => {
                    tracing::error!(command = %id, "too many orders wait; this one is not taken yet");
                }
                Taken::New => new.push((id.clone(), kind, taken)),
            }
        }
        if !new.is_empty() {
            self.keep_taken(new, before);
        }
        self.keep_orders();
    }

    /// Has all of these on disk at once, or none is taken.
    fn keep_taken(&mut self, new: Vec<(String, CommandType, u64)>, before: Journal) {
        match self.save_orders() {
            Ok(()) => {
                for (id, kind, _) in new {
                    self.orders.taken.remove(&id);
                    tracing::info!(command = %id, kind = %kind, "order taken");
                }
            }
            Err(e) => {
                // They are told again with the next answer.
                self.orders.journal = before;
                self.orders
                    .taken
                    .extend(new.into_iter().map(|(id, _, at)| (id, at)));
                self.warn_once(
                    "orders",
                    &format!("orders cannot be kept, and are not begun: {e}"),
                );
            }
        }
    }

    /// The gateway has taken these acknowledgements.
    pub(in crate::run) fn orders_heard(&mut self, told: &[Acknowledgement]) {
        self.orders
            .refusals
            .retain(|r| !told.iter().any(|t| t.command_id == r.command_id));
        if self.orders.journal.heard(told) {
            self.orders.unsaved = true;
            self.keep_orders();
        }
    }

    /// The gateway takes no heartbeat with these: too large. Whether the next one is smaller.
    pub(in crate::run) fn orders_too_large(&mut self, told: &[Acknowledgement]) -> bool {
        let smaller = self.orders.journal.too_large(told);
        if smaller {
            tracing::warn!("the gateway takes no heartbeat with the report of a diagnostic: it is left out");
            self.orders.unsaved = true;
            self.keep_orders();
        }
        smaller
    }

    fn save_orders(&mut self) -> Result<(), String> {
        let (journal, state) = (self.orders.journal.clone(), self.state.clone());
        self.keep_now(("orders", &journal.clone()), move || journal.save(&state))
    }

    /// Writes the journal, if the disk does not hold it yet.
    pub(super) fn keep_orders(&mut self) {
        self.status.drain.clone_from(&self.orders.journal.drain);
        self.status.orders = self.orders.shown();
        if !self.orders.unsaved {
            return;
        }
        self.orders.save_at = instant().checked_add(PATIENCE);
        match self.save_orders() {
            Ok(()) => {
                (self.orders.unsaved, self.orders.save_at) = (false, None);
                self.over("orders", "orders can be kept again");
            }
            Err(e) => self.warn_once(
                "orders",
                &format!("orders cannot be kept, and none is begun: {e}"),
            ),
        }
    }
}
