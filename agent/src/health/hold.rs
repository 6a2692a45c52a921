//! Findings that stay for a while after they were last seen: what comes and goes is one trouble, not many. Pure.

use std::time::Instant;

use super::Finding;

/// Findings remembered at most: more than a node with sixteen GPUs has.
const MOST: usize = 256;

/// Findings seen lately.
#[derive(Debug, Default, Clone)]
pub struct Held(Vec<(Finding, Instant)>);

impl Held {
    /// What counts now: what is `found`, and what was seen a short while ago.
    pub fn update(&mut self, found: Vec<Finding>, now: Instant) -> Vec<Finding> {
        let present = |held: &Finding| found.iter().any(|f| f.key() == held.key());
        self.0
            .retain(|(f, seen)| !present(f) && now.saturating_duration_since(*seen) < f.kind.stays());
        let mut all = found.clone();
        all.extend(self.0.iter().map(|(f, _)| f.clone()));
        all.sort_by_key(|f| std::cmp::Reverse(f.kind.severity));
        let stay = found.into_iter().filter(|f| !f.kind.stays().is_zero());
        self.0.extend(stay.map(|f| (f, now)));
        self.0.truncate(MOST);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::health::kind;

    fn finding(code: &str) -> Finding {
        of(code, "")
    }

    fn of(code: &str, subject: &str) -> Finding {
        Finding {
            kind: kind(code).unwrap(),
            subject: subject.into(),
            message: "m".into(),
        }
    }

    #[test]
    fn of_two_parts_with_the_same_trouble_each_stays_for_its_own_time() {
        let (mut held, start) = (Held::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        held.update(vec![of("gpu_hot", "a")], at(0));
        let subjects = |all: Vec<Finding>| all.into_iter().map(|f| f.subject).collect::<Vec<_>>();
        assert_eq!(
            subjects(held.update(vec![of("gpu_hot", "b")], at(200))),
            ["b", "a"]
        );
        assert_eq!(subjects(held.update(vec![], at(300))), ["b"]);
        assert!(held.update(vec![], at(500)).is_empty());
    }

    #[test]
    fn heat_that_comes_and_goes_is_one_trouble_and_a_fact_ends_at_once() {
        let (mut held, start) = (Held::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let codes = |all: Vec<Finding>| all.iter().map(|f| f.kind.code).collect::<Vec<_>>();
        let both = vec![finding("cpu_hot"), finding("slurm_silent")];
        assert_eq!(codes(held.update(both, at(0))), ["cpu_hot", "slurm_silent"]);
        assert_eq!(codes(held.update(vec![], at(60))), ["cpu_hot"]);
        assert_eq!(codes(held.update(vec![finding("cpu_hot")], at(200))), ["cpu_hot"]);
        assert_eq!(codes(held.update(vec![], at(499))), ["cpu_hot"]);
        assert!(held.update(vec![], at(500)).is_empty() && held.0.is_empty());
    }

    #[test]
    fn several_of_a_kind_stay_together_and_the_memory_is_bounded() {
        let (mut held, now) = (Held::default(), Instant::now());
        for _ in 0..100 {
            held.update(vec![finding("gpu_hot"), finding("gpu_hot")], now);
        }
        assert_eq!(held.update(vec![], now).len(), 2);
        held.update(vec![finding("gpu_hot"); 500], now);
        assert!(held.0.len() <= MOST);
    }
}
