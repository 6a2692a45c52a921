//! Out of service by policy: a fault that lasts drains the node, and only proof brings it back. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, Kind};

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The finding's code.
    pub code: String,
    /// The part that it is about, where there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// For people.
    pub message: String,
}

impl Reason {
    /// What speaks of this finding.
    #[must_use]
    pub fn of(f: &Finding) -> Self {
        Self {
            code: f.kind.code.to_owned(),
            subject: f.subject.clone(),
            message: f.message.clone(),
        }
    }

    /// Whether it is about this finding, whatever it says by now.
    #[must_use]
    pub fn is(&self, f: &Finding) -> bool {
        f.key() == (self.code.as_str(), self.subject.as_str())
    }
}

/// Reasons kept at most.
const MOST: usize = 64;

/// A node that its agent keeps out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutOfService {
    /// UNIX seconds.
    pub since: u64,
    /// Why: what had lasted then, and what has lasted since.
    pub reasons: Vec<Reason>,
    /// What the return waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

impl OutOfService {
    /// `gpu_lost: GPU 3 does not answer any more; …`.
    #[must_use]
    pub fn why(&self) -> String {
        let all: Vec<String> = self
            .reasons
            .iter()
            .map(|r| format!("{}: {}", r.code, r.message))
            .collect();
        all.join("; ")
    }
}

/// Which findings drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drains {
    /// None.
    Never,
    /// Those that the catalogue marks.
    Faults,
    /// These, each after what the catalogue says, else after a minute.
    These(Vec<String>),
}

/// The site's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which findings drain.
    pub drains: Drains,
    /// How long all must have been well before the node returns.
    pub return_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            drains: Drains::Faults,
            return_after: Duration::from_secs(600),
        }
    }
}

/// Of findings that the catalogue does not drain for.
const USUAL: Duration = Duration::from_secs(60);

impl Policy {
    /// How long a finding must last before it drains; none if it never does.
    #[must_use]
    pub fn after(&self, kind: &Kind) -> Option<Duration> {
        match &self.drains {
            Drains::Never => None,
            Drains::Faults => kind.drains(),
            Drains::These(codes) => codes
                .iter()
                .any(|c| c == kind.code)
                .then(|| kind.drains().unwrap_or(USUAL)),
        }
    }
}

/// What speaks for the node beside the absence of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// When the oldest of the figures that findings are made of was measured, the site's checks among them; none while
    /// one is missing.
    pub probed: Option<Instant>,
    /// Slots of tasks that have not been proven clean.
    pub unproven_slots: u32,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In service, and stays so.
    In,
    /// Out of service from now on, or for more reasons than before.
    Out(Vec<Reason>),
    /// Stays out, for this.
    Waits(String),
    /// Proven: back to service.
    Return,
}

/// What is remembered between two looks.
#[derive(Debug, Default, Clone)]
pub struct Watch {
    /// Since when each finding lasts.
    lasts: BTreeMap<(&'static str, String), Instant>,
    /// Since when nothing speaks against the node.
    clear: Option<Instant>,
}

impl Watch {
    /// Looks once more. `pardoned`: what a person has returned the node in spite of, while it lasts.
    pub fn step(
        &mut self,
        out: Option<&OutOfService>,
        findings: &[Finding],
        pardoned: &[Reason],
        proof: Proof,
        policy: &Policy,
        now: Instant,
    ) -> Step {
        let key = |f: &Finding| (f.kind.code, f.subject.clone());
        self.lasts.retain(|k, _| findings.iter().any(|f| key(f) == *k));
        for f in findings {
            self.lasts.entry(key(f)).or_insert(now);
        }
        let grave = |f: &&Finding| policy.after(f.kind).is_some() && !pardoned.iter().any(|p| p.is(f));
        let lasted = |f: &&Finding| {
            let since = self.lasts.get(&key(f)).copied().unwrap_or(now);
            policy
                .after(f.kind)
                .is_some_and(|after| now.saturating_duration_since(since) >= after)
        };
        let reasons = out.map_or(&[][..], |o| &o.reasons);
        let known = |f: &&Finding| reasons.iter().any(|r| r.is(f));
        let new: Vec<Reason> = findings
            .iter()
            .filter(|f| grave(f) && lasted(f) && !known(f))
            .map(Reason::of)
            .take(MOST.saturating_sub(reasons.len()))
            .collect();
        if !new.is_empty() {
            self.clear = None;
            return Step::Out(new);
        }
        if out.is_none() {
            self.clear = None;
            return Step::In;
        }
        let against = findings
            .iter()
            .find(|f| grave(f) || known(f) || f.kind.code == "hardware_changed");
        if let Some(f) = against {
            self.clear = None;
            return Step::Waits(format!("{} to end", f.kind.code));
        }
        let clear = *self.clear.get_or_insert(now);
        let left = policy
            .return_after
            .saturating_sub(now.saturating_duration_since(clear));
        match self.unproven(proof) {
            Some(missing) => Step::Waits(missing),
            None if left.is_zero() => Step::Return,
            None => Step::Waits(format!("{} s more without a finding", left.as_secs().max(1))),
        }
    }

    /// What is missing for a return now, the waiting time aside.
    #[must_use]
    pub fn unproven(&self, proof: Proof) -> Option<String> {
        let Some(clear) = self.clear else {
            return Some("the findings to end".to_owned());
        };
        if proof.probed.is_none_or(|at| at < clear) {
            return Some("a probe of everything, and the site's checks, after the findings ended".to_owned());
        }
        (proof.unproven_slots > 0)
            .then(|| format!("{} slots of tasks to be proven clean", proof.unproven_slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::kind;

    /// `gpu_lost` or `gpu_lost@1b:00`.
    fn finding(text: &str) -> Finding {
        let (code, subject) = text.split_once('@').unwrap_or((text, ""));
        Finding {
            kind: kind(code).unwrap(),
            subject: subject.into(),
            message: format!("{code} happened"),
        }
    }

    struct Node {
        watch: Watch,
        out: Option<OutOfService>,
        policy: Policy,
        start: Instant,
        pardoned: Vec<Reason>,
    }

    impl Node {
        fn new(drains: Drains) -> Self {
            Self {
                watch: Watch::default(),
                out: None,
                policy: Policy {
                    drains,
                    return_after: Duration::from_secs(600),
                },
                start: Instant::now(),
                pardoned: Vec::new(),
            }
        }

        /// At `at` seconds with these findings, probed `probed` seconds after the start.
        fn at(&mut self, at: u64, codes: &[&str], probed: Option<u64>, slots: u32) -> Step {
            let second = |s| self.start + Duration::from_secs(s);
            let findings: Vec<Finding> = codes.iter().map(|c| finding(c)).collect();
            let proof = Proof {
                probed: probed.map(second),
                unproven_slots: slots,
            };
            let step = self.watch.step(
                self.out.as_ref(),
                &findings,
                &self.pardoned,
                proof,
                &self.policy,
                second(at),
            );
            if let Step::Out(new) = &step {
                let out = self.out.get_or_insert(OutOfService {
                    since: at,
                    reasons: Vec::new(),
                    waits_for: None,
                });
                out.reasons.extend(new.clone());
            }
            step
        }
    }

    #[test]
    fn a_fault_drains_once_it_has_lasted_and_one_that_comes_and_goes_does_not() {
        let mut n = Node::new(Drains::Faults);
        assert_eq!(n.at(0, &["gpu_lost", "cpu_hot"], None, 0), Step::In);
        assert_eq!(n.at(59, &["gpu_lost", "cpu_hot"], None, 0), Step::In);
        assert_eq!(n.at(60, &[], None, 0), Step::In);
        assert_eq!(n.at(61, &["gpu_lost"], None, 0), Step::In);
        let Step::Out(reasons) = n.at(121, &["gpu_lost"], None, 0) else {
            panic!()
        };
        assert_eq!(reasons[0].code, "gpu_lost");
        // Told once; another reason is told too.
        assert_eq!(
            n.at(130, &["gpu_lost"], None, 0),
            Step::Waits("gpu_lost to end".into())
        );
        n.at(140, &["gpu_lost", "memory_uncorrected"], None, 0);
        assert!(
            matches!(n.at(400, &["gpu_lost", "memory_uncorrected"], None, 0), Step::Out(r) if r.len() == 1)
        );
    }

    #[test]
    fn only_proof_brings_a_node_back() {
        let mut n = Node::new(Drains::Faults);
        n.at(0, &["gpu_lost"], None, 0);
        n.at(60, &["gpu_lost"], None, 0);
        let waits = |step: Step| match step {
            Step::Waits(why) => why,
            other => panic!("{other:?}"),
        };
        // Well since 100; the last probe is older.
        assert!(waits(n.at(100, &[], Some(99), 0)).contains("a probe"));
        assert!(waits(n.at(800, &[], Some(99), 0)).contains("a probe"));
        assert!(waits(n.at(800, &[], None, 0)).contains("a probe"));
        assert!(waits(n.at(800, &[], Some(790), 2)).contains("2 slots"));
        assert_eq!(n.at(800, &[], Some(790), 0), Step::Return);
        // A relapse begins the time anew; so does other hardware.
        assert!(waits(n.at(801, &["gpu_lost"], Some(800), 0)).contains("gpu_lost"));
        assert!(waits(n.at(810, &[], Some(811), 0)).contains("600 s more"));
        assert!(waits(n.at(1000, &["hardware_changed"], Some(1000), 0)).contains("hardware_changed"));
        assert!(waits(n.at(1001, &[], Some(1001), 0)).contains("600 s more"));
        assert_eq!(n.at(1601, &[], Some(1600), 0), Step::Return);
    }

    #[test]
    fn the_policy_says_which_findings_drain() {
        let lasts = |drains: Drains, code: &str| {
            let mut n = Node::new(drains);
            n.at(0, &[code], None, 0);
            matches!(n.at(3600, &[code], None, 0), Step::Out(_))
        };
        assert!(!lasts(Drains::Never, "gpu_lost"));
        assert!(lasts(Drains::Faults, "gpu_lost") && !lasts(Drains::Faults, "cpu_hot"));
        let these = || Drains::These(vec!["cpu_hot".into()]);
        assert!(lasts(these(), "cpu_hot") && !lasts(these(), "gpu_lost"));
    }

    #[test]
    fn what_a_person_pardoned_does_not_drain_again_while_it_lasts() {
        let mut n = Node::new(Drains::Faults);
        n.pardoned = vec![Reason::of(&finding("gpu_lost"))];
        n.at(0, &["gpu_lost"], None, 0);
        assert_eq!(n.at(3600, &["gpu_lost"], None, 0), Step::In);
    }

    #[test]
    fn a_second_part_that_fails_is_not_hidden_behind_a_pardoned_first() {
        let mut n = Node::new(Drains::Faults);
        n.pardoned = vec![Reason::of(&finding("gpu_lost@1b:00"))];
        n.at(0, &["gpu_lost@1b:00"], None, 0);
        assert_eq!(
            n.at(100, &["gpu_lost@1b:00", "gpu_lost@1c:00"], None, 0),
            Step::In
        );
        let Step::Out(reasons) = n.at(160, &["gpu_lost@1b:00", "gpu_lost@1c:00"], None, 0) else {
            panic!()
        };
        assert_eq!((reasons.len(), reasons[0].subject.as_str()), (1, "1c:00"));
        // Nor is its end hidden: the node waits for the second alone.
        let out = n.at(200, &["gpu_lost@1b:00"], Some(199), 0);
        assert!(matches!(&out, Step::Waits(w) if w.contains("a probe")), "{out:?}");
    }

    #[test]
    fn reasons_are_bounded_however_many_parts_fail() {
        let mut n = Node::new(Drains::Faults);
        let many: Vec<String> = (0..200).map(|i| format!("site_check_failed@{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        n.at(0, &many, None, 0);
        assert!(matches!(n.at(60, &many, None, 0), Step::Out(r) if r.len() == MOST));
        assert!(matches!(n.at(61, &many, None, 0), Step::Waits(_)));
    }
}
