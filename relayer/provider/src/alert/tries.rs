//! What is known of the tries of a message that is under way, also where the store cannot take it. Pure.

use super::outbox::Message;
use crate::clock::Steady;

/// The longest pause between two tries of a delivery.
const MOST_PAUSE_MS: u64 = 300_000;
/// A receiver that has not taken a message for so long is a trouble itself.
pub(super) const FAILING_MS: u64 = 600_000;
/// A message that its receiver calls unfit so often is dropped, for the others wait behind it.
const MOST_UNFIT: u32 = 6;
/// With this status it has to be older than [`FAILING_MS`] too: it may be the receiver's own passing trouble, such as a
/// secret that is being changed.
const MAY_PASS: u16 = 400;

/// The message that is under way.
#[derive(Debug, Default)]
pub(super) struct Tries {
    id: String,
    attempts: u32,
    next_at: Steady,
    /// How old it was when it was turned to, and when that was.
    age_ms: u64,
    since: Steady,
    unfit: u32,
    over: bool,
}

impl Tries {
    /// Turns to this message: what is known of the same one stays. Of another one the store knows the times by a clock that may
    /// have been put back since: it waits for the longest pause at most.
    pub(super) fn turn_to(&mut self, message: &Message, now_ms: u64, now: Steady) {
        if self.id != message.id {
            let most = pause_ms(u32::MAX, &message.id);
            let left = message.next_at.saturating_sub(now_ms).min(most);
            *self = Self {
                id: message.id.clone(),
                next_at: now.after(left),
                age_ms: now_ms.saturating_sub(message.created_at),
                since: now,
                ..Self::default()
            };
        }
        self.attempts = self.attempts.max(message.attempts);
    }

    /// How old it is, as far as is known.
    pub(super) fn age_ms(&self, now: Steady) -> u64 {
        self.age_ms.saturating_add(now.since(self.since))
    }

    /// It goes no more, taken or dropped: only the store is still to know.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn end(&mut self) {
        self.over = true;
    }

    pub(super) fn is_due(&self, now: Steady) -> bool {
        self.next_at <= now
    }

    /// It was not taken; after how many milliseconds it goes again.
    pub(super) fn fail(&mut self, now: Steady) -> u64 {
        let pause = pause_ms(self.attempts, &self.id);
        self.next_at = now.after(pause);
        self.attempts = self.attempts.saturating_add(1);
        pause
    }

    /// It was called unfit; whether that is once too often.
    pub(super) fn is_dropped(&mut self, code: u16, age_ms: u64) -> bool {
        self.unfit = self.unfit.saturating_add(1);
        is_too_often(self.unfit, code, age_ms)
    }
}

fn is_too_often(times: u32, code: u16, age_ms: u64) -> bool {
    times >= MOST_UNFIT && (code != MAY_PASS || age_ms > FAILING_MS)
}

/// A second, and twice as long with each failure, to five minutes; spread by the message's id.
fn pause_ms(attempts: u32, id: &str) -> u64 {
    let pause = 1_000u64.saturating_mul(1 << attempts.min(20)).min(MOST_PAUSE_MS);
    let spread = id
        .bytes()
        .fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)))
        % 250;
    pause.saturating_add(pause.saturating_mul(spread) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfit_message_is_dropped_at_the_sixth_time_and_one_of_http_400_not_before_ten_minutes() {
        for code in [413, 422] {
            assert!(!is_too_often(5, code, u64::MAX) && is_too_often(6, code, 0));
        }
        assert!(!is_too_often(20, 400, FAILING_MS));
        assert!(is_too_often(6, 400, FAILING_MS + 1));
        assert!(!is_too_often(5, 400, u64::MAX));
    }

    #[test]
    fn pauses_grow_to_five_minutes_and_a_quarter() {
        let pauses: Vec<u64> = (0..40).map(|n| pause_ms(n, "ab")).collect();
        assert!(
            pauses.is_sorted() && pauses[0] < 1_300 && pauses[39] <= 375_000,
            "{pauses:?}"
        );
    }

    fn stored(id: &str, attempts: u32, next_at: u64) -> Message {
        Message {
            id: id.to_owned(),
            body: String::new(),
            created_at: 0,
            attempts,
            next_at,
        }
    }

    #[test]
    fn the_pauses_of_a_message_grow_also_where_the_store_does_not_count_its_tries() {
        let mut tries = Tries::default();
        let (mut now, mut last) = (Steady(0), 0);
        for _ in 0..8 {
            tries.turn_to(&stored("ab", 0, 0), 0, now);
            assert!(tries.is_due(now));
            let pause = tries.fail(now);
            let next = now.after(pause);
            assert!(
                pause > last && !tries.is_due(now.after(pause - 1)),
                "{next:?} {now:?}"
            );
            (last, now) = (pause, next);
        }
        assert!(last > 120_000, "{last}");
        // Of another one nothing is known yet but what the store has.
        tries.end();
        tries.turn_to(&stored("cd", 2, 7), 0, now);
        assert!(!tries.is_over() && !tries.is_due(now.after(6)) && tries.is_due(now.after(7)));
        assert!(tries.fail(now) >= 4_000);
    }

    #[test]
    fn a_message_waits_for_no_time_of_a_clock_that_was_ahead_and_grows_old_all_the_same() {
        let (now_ms, ahead, now) = (1_000_000, 4_600_000, Steady(5));
        let mut tries = Tries::default();
        let message = Message {
            created_at: ahead,
            ..stored("ab", 3, ahead)
        };
        tries.turn_to(&message, now_ms, now);
        assert!(!tries.is_due(now));
        let later = now.after(375_000);
        // It is the same one, and does not begin anew to wait.
        tries.turn_to(&message, now_ms + 375_000, later);
        assert!(tries.is_due(later));
        assert_eq!(tries.age_ms(later), 375_000);
        // It has waited before, as far as the store knows.
        let message = Message {
            created_at: now_ms - 600_000,
            ..stored("cd", 3, 0)
        };
        tries.turn_to(&message, now_ms, now);
        assert_eq!(tries.age_ms(now.after(1)), 600_001);
    }
}
