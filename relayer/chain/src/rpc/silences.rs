//! Which methods an endpoint gives no answer to: it may answer all others, as where a proxy before it lets only some through.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::RpcError;
use super::health::GIVEN_UP;

/// For so long after a call without an answer its endpoint is asked after the others.
const ASIDE: Duration = Duration::from_secs(60);

/// A method that an endpoint leaves unanswered for a minute or longer, and answers others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// Which.
    pub method: &'static str,
    /// Since its first call without an answer, seconds.
    pub seconds: u64,
    /// What came of the last one; names the method, not the endpoint.
    pub why: String,
}

/// The methods of one endpoint that gave no answer when they were asked last.
#[derive(Debug, Default)]
pub(super) struct Silences(Mutex<BTreeMap<&'static str, Silence>>);

#[derive(Debug)]
struct Silence {
    first: Instant,
    last: Instant,
    /// Another method was answered since the last time.
    others_answer: bool,
    /// Another one was answered between two times: it is the method, not the endpoint.
    alone: bool,
    why: String,
}

impl Silences {
    /// What came of a call.
    pub(super) fn note(&self, method: &'static str, failed: Option<&RpcError>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(e) if e.unanswered().is_some() => {
                let known = all
                    .remove(method)
                    .filter(|s| now.duration_since(s.last) < GIVEN_UP);
                let silence = Silence {
                    first: known.as_ref().map_or(now, |s| s.first),
                    last: now,
                    others_answer: false,
                    alone: known.is_some_and(|s| s.alone || s.others_answer),
                    why: e.to_string(),
                };
                all.insert(method, silence);
            }
            // There is nobody, for this method as for any other.
            Some(RpcError::Unreachable { .. }) => {}
            _ => {
                all.remove(method);
                for other in all.values_mut() {
                    other.others_answer = true;
                }
            }
        }
    }

    /// Nothing of before counts.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the method has given no answer for so long that it is not waited for.
    pub(super) fn is_given_up(&self, method: &str, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(method)
            .is_some_and(|s| now.duration_since(s.first) >= GIVEN_UP)
    }

    /// Whether any method gave no answer a moment ago.
    pub(super) fn is_aside(&self, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().any(|s| now.duration_since(s.last) < ASIDE)
    }

    /// What is to be said of the endpoint `name`; of a method that was not asked for five minutes nothing.
    pub(super) fn lasting(&self, name: &str, now: Instant) -> Vec<Unanswered> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |s: &Silence| {
            s.alone && s.last.duration_since(s.first) >= ASIDE && now.duration_since(s.last) < GIVEN_UP
        };
        let of_it = format!("{name}: ");
        all.iter()
            .filter(|(_, s)| lasts(s))
            .map(|(&method, s)| Unanswered {
                method,
                seconds: now.duration_since(s.first).as_secs(),
                why: s.why.strip_prefix(&of_it).unwrap_or(&s.why).to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "http://a";

    fn late() -> RpcError {
        RpcError::Timeout {
            endpoint: NAME.to_owned(),
            method: "tx",
            millis: 10,
        }
    }

    #[test]
    fn a_method_is_told_once_it_was_silent_for_a_minute_while_others_were_answered() {
        let (all, start) = (Silences::default(), Instant::now());
        let lasting = |after: Duration| all.lasting(NAME, start + after);
        for after in [Duration::ZERO, ASIDE] {
            all.note("tx", Some(&late()), start + after);
            assert!(all.is_aside(start + after));
        }
        assert!(
            lasting(ASIDE).is_empty(),
            "the endpoint may be away: no other was answered"
        );
        all.note("status", None, start + ASIDE);
        assert!(lasting(ASIDE).is_empty(), "the method may be back, too");
        all.note("tx", Some(&late()), start + 2 * ASIDE);
        let told = Unanswered {
            method: "tx",
            seconds: 120,
            why: "no answer to tx within 10 ms".to_owned(),
        };
        assert_eq!(lasting(2 * ASIDE), [told]);
        assert!(!all.is_aside(start + 3 * ASIDE), "it is tried first again");
        assert!(lasting(2 * ASIDE + GIVEN_UP).is_empty(), "it is asked no more");
        all.note("tx", None, start + 3 * ASIDE);
        assert!(lasting(3 * ASIDE).is_empty());
    }

    #[test]
    fn a_method_is_given_up_after_five_minutes_of_asking_and_a_refusal_is_an_answer() {
        let (all, start) = (Silences::default(), Instant::now());
        let gone = RpcError::Unreachable {
            endpoint: NAME.to_owned(),
            reason: String::new(),
        };
        let refused = RpcError::RequestTooLarge {
            endpoint: NAME.to_owned(),
            method: "tx",
        };
        let quarter = GIVEN_UP / 4;
        for (after, failed, given_up) in [
            (0, Some(late()), false),
            (2, Some(late()), false),
            (4, Some(late()), true),
            // Nobody is there: that says nothing of the method.
            (5, Some(gone), true),
            // Not asked for five minutes: whether it was silent meanwhile is not known.
            (8, Some(late()), false),
            (10, Some(late()), false),
            (12, Some(late()), true),
            (13, Some(refused), false),
            (14, Some(late()), false),
            (15, None, false),
        ] {
            let now = start + quarter * after;
            all.note("tx", failed.as_ref(), now);
            assert_eq!(all.is_given_up("tx", now), given_up, "{after}");
        }
    }
}
