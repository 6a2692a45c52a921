//! What became of each order, so that none is carried out twice, whatever is killed. Pure but for load and save.

use hpc_schema::code::Code;
use hpc_schema::command::{
    Acknowledgement, AcknowledgementStatus, Command, CommandType, MAX_ACKNOWLEDGEMENTS,
};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use crate::files::{Durability, FileError};
use crate::state::{StateDir, read_json, write_json};

/// Orders kept; a node has at most 16 that wait.
const LIMIT: usize = 128;
/// An order is remembered this long after its deadline: the clock may be set back.
const REMEMBERED: u64 = 24 * 3600;

/// The orders of this node.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// UNIX seconds since which orders are written down.
    since: u64,
    /// The provider's drain, while it is in force here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<OrderedDrain>,
    /// Oldest first.
    #[serde(default)]
    entries: Vec<Entry>,
}

/// A drain that the provider ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OrderedDrain {
    /// The order.
    pub command_id: String,
    /// UNIX seconds.
    pub since: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub command_id: String,
    /// What is to be done.
    #[serde(rename = "type")]
    pub kind: CommandType,
    /// The JSON that was signed.
    pub parameters: String,
    /// UNIX seconds.
    pub issued_at: u64,
    /// UNIX seconds after which it is not begun.
    pub deadline: u64,
    /// When it was written down.
    pub taken_at: u64,
    /// How often it was begun.
    #[serde(default)]
    pub attempts: u32,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What the gateway has heard of it.
    #[serde(default)]
    heard: Heard,
}

/// What the gateway has heard of an order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Heard {
    #[default]
    Nothing,
    Accepted,
    Outcome,
}

/// What became of a verified order that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is new, and has to be kept before it is begun.
    New,
    /// It was taken before; what became of it is told again.
    Known,
    /// Too many wait.
    Full,
}

impl Journal {
    /// Nothing yet.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// As kept; a new one if there is none.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir, now: u64) -> Result<Self, FileError> {
        Ok(read_json(&state.orders())?.unwrap_or_else(|| Self::new(now)))
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.orders(), self, 0o640, Durability::Synced)
    }

    /// Newest last.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Takes an order whose signature is good.
    pub fn take(&mut self, command: &Command, kind: CommandType, now: u64) -> Taken {
        let deadline = command.deadline.seconds().0;
        if let Some(known) = self.find(&command.command_id) {
            // The provider's drain is told as long as it lasts.
            known.deadline = known.deadline.max(deadline);
            known.heard = Heard::Nothing;
            return Taken::Known;
        }
        self.entries
            .retain(|e| e.deadline.saturating_add(REMEMBERED) >= now);
        if self.entries.len() >= LIMIT && !self.evict() {
            return Taken::Full;
        }
        let issued_at = command.issued_at.seconds().0;
        let mut entry = Entry {
            command_id: command.command_id.clone(),
            kind,
            parameters: command.parameters.get().to_owned(),
            issued_at,
            deadline,
            taken_at: now,
            attempts: 0,
            outcome: None,
            heard: Heard::Nothing,
        };
        if turns(kind) {
            // The last word counts, in whatever order they arrive.
            if self
                .entries
                .iter()
                .any(|e| turns(e.kind) && e.issued_at > issued_at)
            {
                entry.outcome = Some(superseded(now));
            } else {
                for older in self.entries.iter_mut().filter(|e| turns(e.kind)) {
                    older.outcome.get_or_insert_with(|| superseded(now));
                }
            }
        } else if kind != CommandType::RunDiagnostic && issued_at < self.since {
            // Whether it was carried out is not known any more; once too few is better than once too many.
            let text = "was issued before this agent's journal of orders begins; send it again";
            entry.outcome = Some(Outcome::refused(now, Code::InvalidState, text));
        }
        self.entries.push(entry);
        Taken::New
    }

    /// Forgets the finished order that is missed least; false if none has finished. A new one must not be lost for it.
    fn evict(&mut self) -> bool {
        // By the last word on draining, older ones are known to be old.
        let last_word = self.entries.iter().filter(|e| turns(e.kind)).map(|e| e.issued_at);
        let last_word = last_word.max();
        let finished = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.outcome.is_some() && !(turns(e.kind) && Some(e.issued_at) == last_word));
        let least = finished.min_by_key(|(n, e)| {
            let diagnostic = e.kind == CommandType::RunDiagnostic;
            (!diagnostic, e.heard != Heard::Outcome, *n)
        });
        let Some(n) = least.map(|(n, _)| n) else {
            return false;
        };
        let gone = self.entries.remove(n);
        if !turns(gone.kind) && gone.kind != CommandType::RunDiagnostic {
            // Told again, it is not known as carried out any more: too old from now on.
            self.since = self.since.max(gone.issued_at.saturating_add(1));
        }
        true
    }

    /// Takes a new order back that could not be kept.
    pub fn drop_newest(&mut self) {
        self.entries.pop();
    }

    /// The order that is to be carried out next, of those that are `ready`: drain and resume before all others, the
    /// oldest of the others, a shutdown after all of them but updates: a download may take long.
    #[must_use]
    pub fn next(&self, ready: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        let open = || self.entries.iter().filter(|e| e.outcome.is_none());
        let waits = open().any(|e| !matches!(e.kind, CommandType::Shutdown | CommandType::UpdateAgent));
        open()
            .filter(|e| (e.kind != CommandType::Shutdown || !waits) && ready(e))
            .min_by_key(|e| {
                let last = e.kind == CommandType::Shutdown;
                (!turns(e.kind), last, e.issued_at, e.taken_at)
            })
    }

    /// It is begun, or begun again.
    pub fn begin(&mut self, command_id: &str) {
        if let Some(entry) = self.find(command_id) {
            entry.attempts = entry.attempts.saturating_add(1);
        }
    }

    /// It has ended. The first outcome stays.
    pub fn finish(&mut self, command_id: &str, outcome: Outcome) {
        if let Some(entry) = self.find(command_id) {
            entry.outcome.get_or_insert(outcome);
        }
    }

    /// What the gateway has to hear, outcomes first.
    #[must_use]
    pub fn acknowledgements(&self) -> Vec<Acknowledgement> {
        // One report at a time: a heartbeat has room for no more.
        let mut reported = false;
        let outcomes = self.entries.iter().filter_map(|e| {
            let o = e.outcome.as_ref().filter(|_| e.heard != Heard::Outcome)?;
            if o.report.is_some() && std::mem::replace(&mut reported, true) {
                return None;
            }
            Some(Acknowledgement {
                report: o.report.clone(),
                command_id: e.command_id.clone(),
                status: o.status,
                code: o.code.clone(),
                detail: o.detail.clone(),
            })
        });
        let under_way = self
            .entries
            .iter()
            .filter(|e| e.outcome.is_none() && e.heard == Heard::Nothing);
        let accepted = under_way.map(|e| Acknowledgement {
            command_id: e.command_id.clone(),
            status: AcknowledgementStatus::Accepted,
            code: None,
            detail: None,
            report: None,
        });
        outcomes.chain(accepted).take(MAX_ACKNOWLEDGEMENTS).collect()
    }

    /// Whether an outcome waits to be heard.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.entries
            .iter()
            .any(|e| e.outcome.is_some() && e.heard != Heard::Outcome)
    }

    /// The gateway has taken these; whether that was news.
    pub fn heard(&mut self, told: &[Acknowledgement]) -> bool {
        let mut news = false;
        for ack in told {
            let Some(entry) = self.find(&ack.command_id) else {
                continue;
            };
            let heard = if ack.status == AcknowledgementStatus::Accepted {
                Heard::Accepted
            } else {
                Heard::Outcome
            };
            news |= entry.heard != heard;
            entry.heard = heard;
            if let Some(outcome) = entry.outcome.as_mut().filter(|_| heard == Heard::Outcome) {
                outcome.report = None;
            }
        }
        news
    }

    /// The gateway refuses a heartbeat with these as too large: reports are left out of what it hears from now on.
    /// Whether there was one.
    pub fn too_large(&mut self, told: &[Acknowledgement]) -> bool {
        let mut news = false;
        for ack in told.iter().filter(|a| a.report.is_some()) {
            if let Some(outcome) = self.find(&ack.command_id).and_then(|e| e.outcome.as_mut()) {
                outcome.without_report();
                news = true;
            }
        }
        news
    }

    fn find(&mut self, command_id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.command_id == command_id)
    }
}

/// Whether the order says if the node takes work.
fn turns(kind: CommandType) -> bool {
    matches!(kind, CommandType::Drain | CommandType::Resume)
}

fn superseded(now: u64) -> Outcome {
    Outcome::refused(now, Code::InvalidState, "a later drain or resume replaces it")
}

#[cfg(test)]
mod tests {
    use hpc_schema::time::Rfc3339;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn command(id: &str, issued: u64, deadline: u64) -> Command {
        Command {
            command_id: id.to_owned(),
            command_type: String::new(),
            parameters: RawValue::from_string("{}".to_owned()).unwrap(),
            deadline: Rfc3339::from_unix(deadline, 0).unwrap(),
            issued_at: Rfc3339::from_unix(issued, 0).unwrap(),
            nonce: String::new(),
            signature: String::new(),
        }
    }

    fn ready(_: &Entry) -> bool {
        true
    }

    fn statuses(j: &Journal) -> Vec<(String, &'static str)> {
        j.acknowledgements()
            .into_iter()
            .map(|a| (a.command_id, a.status.as_str()))
            .collect()
    }

    #[test]
    fn an_order_is_taken_once_and_heard_until_the_gateway_has_its_outcome() {
        let mut j = Journal::new(100);
        let c = command("c1", 100, 200);
        assert_eq!(j.take(&c, CommandType::Drain, 110), Taken::New);
        assert_eq!(statuses(&j), [("c1".to_owned(), "accepted")]);
        let told = j.acknowledgements();
        assert!(j.heard(&told) && !j.heard(&told) && statuses(&j).is_empty() && !j.has_news());
        assert_eq!(j.next(ready).unwrap().command_id, "c1");
        j.begin("c1");
        j.finish("c1", Outcome::done(120, "drained"));
        j.finish("c1", Outcome::failed(121, "late"));
        assert!(j.next(ready).is_none() && j.has_news());
        assert_eq!(statuses(&j), [("c1".to_owned(), "done")]);
        j.heard(&j.clone().acknowledgements());
        assert!(statuses(&j).is_empty());
        // The gateway forgot it: it is told again, and not carried out again.
        assert_eq!(
            j.take(&command("c1", 100, 900), CommandType::Drain, 130),
            Taken::Known
        );
        assert_eq!(statuses(&j), [("c1".to_owned(), "done")]);
        assert!(j.next(ready).is_none());
    }

    #[test]
    fn the_last_word_on_draining_counts_in_whatever_order_words_arrive() {
        let mut j = Journal::new(0);
        j.take(&command("drain", 10, 999), CommandType::Drain, 20);
        j.take(&command("resume", 30, 999), CommandType::Resume, 40);
        assert_eq!(j.next(ready).unwrap().command_id, "resume");
        assert_eq!(
            j.entries()
                .next()
                .unwrap()
                .outcome
                .as_ref()
                .unwrap()
                .code
                .as_deref(),
            Some("invalid_state")
        );
        j.take(&command("old", 20, 999), CommandType::Drain, 50);
        assert_eq!(j.next(ready).unwrap().command_id, "resume");
    }

    #[test]
    fn after_a_lost_journal_only_what_does_no_harm_twice_is_carried_out() {
        let mut j = Journal::new(100);
        for (id, kind) in [("s", CommandType::Shutdown), ("u", CommandType::UpdateAgent)] {
            j.take(&command(id, 99, 999), kind, 101);
        }
        assert!(j.next(ready).is_none() && j.has_news());
        j.take(&command("d", 99, 999), CommandType::Drain, 102);
        j.take(&command("s2", 100, 999), CommandType::Shutdown, 103);
        assert_eq!(j.next(ready).unwrap().command_id, "d");
    }

    #[test]
    fn the_journal_is_bounded_by_number_and_time() {
        let mut j = Journal::new(0);
        for n in 0..LIMIT {
            assert_eq!(
                j.take(&command(&n.to_string(), 1, 100), CommandType::RunDiagnostic, 50),
                Taken::New
            );
        }
        assert_eq!(
            j.take(&command("x", 1, 100), CommandType::RunDiagnostic, 50),
            Taken::Full
        );
        let later = 101 + REMEMBERED;
        assert_eq!(
            j.take(&command("x", 1, later), CommandType::RunDiagnostic, later),
            Taken::New
        );
        assert_eq!(j.entries().count(), 1);
    }

    #[test]
    fn finished_orders_make_room_diagnostics_first_and_what_does_harm_is_not_begun_again() {
        let mut j = Journal::new(0);
        let take = |j: &mut Journal, id: &str, issued, kind| j.take(&command(id, issued, 10_000), kind, 50);
        take(&mut j, "drain", 1, CommandType::Drain);
        take(&mut j, "shutdown", 2, CommandType::Shutdown);
        for id in ["drain", "shutdown"] {
            j.finish(id, Outcome::done(50, ""));
        }
        for n in 2..LIMIT {
            let id = format!("d{n}");
            take(&mut j, &id, 3, CommandType::RunDiagnostic);
            j.finish(&id, Outcome::done(50, ""));
        }
        // d3 was heard, d2 was not.
        j.find("d3").unwrap().heard = Heard::Outcome;
        let there = |j: &Journal, id: &str| j.entries().any(|e| e.command_id == id);
        assert_eq!(take(&mut j, "u1", 4, CommandType::UpdateAgent), Taken::New);
        assert!(!there(&j, "d3") && there(&j, "d2"));
        for n in 2..LIMIT {
            take(&mut j, &format!("u{n}"), 5, CommandType::UpdateAgent);
        }
        // Open orders are never forgotten, nor is the last word on draining.
        assert!(there(&j, "u1") && there(&j, "drain") && !there(&j, "shutdown"));
        assert_eq!(take(&mut j, "x", 6, CommandType::RunDiagnostic), Taken::Full);
        j.finish("u1", Outcome::done(50, ""));
        assert_eq!(take(&mut j, "shutdown", 2, CommandType::Shutdown), Taken::New);
        let told_again = j.entries().next_back().unwrap().outcome.as_ref().unwrap();
        assert_eq!(told_again.code.as_deref(), Some("invalid_state"));
    }

    #[test]
    fn drain_and_resume_go_first_and_a_shutdown_waits_for_all_but_updates() {
        let mut j = Journal::new(0);
        for (id, issued, kind) in [
            ("shutdown", 1, CommandType::Shutdown),
            ("update", 2, CommandType::UpdateAgent),
            ("diagnostic", 3, CommandType::RunDiagnostic),
            ("drain", 4, CommandType::Drain),
        ] {
            j.take(&command(id, issued, 999), kind, 10);
        }
        let next = |j: &Journal, not: &[&str]| {
            let ready = |e: &Entry| !not.contains(&e.command_id.as_str());
            j.next(ready).map(|e| e.command_id.clone())
        };
        assert_eq!(next(&j, &[]).as_deref(), Some("drain"));
        assert_eq!(next(&j, &["drain"]).as_deref(), Some("update"));
        assert_eq!(next(&j, &["drain", "update"]).as_deref(), Some("diagnostic"));
        assert_eq!(next(&j, &["drain", "update", "diagnostic"]), None);
        j.finish("drain", Outcome::done(11, ""));
        j.finish("diagnostic", Outcome::done(11, ""));
        assert_eq!(next(&j, &["update"]).as_deref(), Some("shutdown"));
    }

    #[test]
    fn a_report_that_the_gateway_refuses_is_left_out_and_said_to_be() {
        let mut j = Journal::new(0);
        j.take(&command("d", 1, 999), CommandType::RunDiagnostic, 10);
        j.finish(
            "d",
            Outcome::done(11, "all well").with_report(&serde_json::json!({"a": 1})),
        );
        let told = j.acknowledgements();
        assert!(told[0].report.is_some() && j.too_large(&told));
        let again = j.acknowledgements();
        let detail = again[0].detail.clone().unwrap();
        assert!(
            again[0].report.is_none() && detail.contains("413") && detail.ends_with("all well"),
            "{detail}"
        );
        assert!(!j.too_large(&again));
    }

    proptest! {
        /// Whatever is told again, and wherever the process is killed after the journal was kept: each order that
        /// does not turn the node is begun until it has one outcome, and that outcome never changes.
        #[test]
        fn no_order_has_two_outcomes(steps in proptest::collection::vec((0u8..6, 0u8..4, any::<bool>()), 1..80)) {
            let mut j = Journal::new(0);
            let mut ended = std::collections::BTreeMap::new();
            for (now, (id, step, killed)) in steps.into_iter().enumerate() {
                let now = u64::try_from(now).unwrap() + 1;
                let id = format!("c{id}");
                match step {
                    0 | 1 => { j.take(&command(&id, 1, 1000), CommandType::RunDiagnostic, now); }
                    2 => if let Some(next) = j.next(ready).map(|e| e.command_id.clone()) {
                        prop_assert!(!ended.contains_key(&next));
                        j.begin(&next);
                        j.finish(&next, Outcome::done(now, &format!("at {now}")));
                        ended.insert(next, format!("at {now}"));
                    },
                    _ => { let told = j.acknowledgements(); j.heard(&told); }
                }
                if killed {
                    j = serde_json::from_str(&serde_json::to_string(&j).unwrap()).unwrap();
                }
                for e in j.entries() {
                    let said = e.outcome.as_ref().and_then(|o| o.detail.clone());
                    prop_assert_eq!(said.as_ref(), ended.get(&e.command_id));
                }
            }
        }
    }
}
