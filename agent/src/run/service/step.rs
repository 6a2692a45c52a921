//! One look at whether the node is in service, and what follows.

use std::time::{Duration, Instant};

use hpc_schema::heartbeat::SlurmState;

use crate::clock::instant;
use crate::command::{End, Work};
use crate::health::{Finding, OutOfService, Proof, Reason, Step};
use crate::probe::slurm::{Answer, By, Control, drained_by};
use crate::run::Agent;
use crate::state::{ServiceChange, ServiceWish};

/// Between two attempts to tell Slurm.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts to keep what cannot be kept.
const SAVE_AGAIN: Duration = Duration::from_secs(5);
/// How long a person's wish counts.
const WISH_SECONDS: u64 = 60;
/// What was asked of Slurm before it was told has been answered by then.
const SETTLED: Duration = Duration::from_secs(15);

impl Agent {
    /// Looks at the findings of this moment, and at what a person wishes.
    pub(in crate::run) fn step_service(&mut self, findings: &[Finding]) {
        let now = instant();
        if self.service.save_at.is_some_and(|at| now >= at) {
            self.keep_service();
        }
        let proof = self.proof();
        let service = &mut self.service;
        let lasts = |r: &Reason| findings.iter().any(|f| r.is(f));
        let pardoned = service.record.pardoned.len();
        // Before all is measured nothing is known to have ended.
        if proof.probed.is_some() {
            service.record.pardoned.retain(lasts);
        }
        let changed = pardoned != service.record.pardoned.len();
        let step = service.watch.step(
            service.record.out.as_ref(),
            findings,
            &service.record.pardoned,
            proof,
            &self.config.policy,
            now,
        );
        match step {
            Step::In => {
                if changed {
                    self.keep_service();
                }
            }
            Step::Out(reasons) => self.leave_service(reasons),
            Step::Waits(what) => {
                if let Some(out) = self.service.record.out.as_mut() {
                    out.waits_for = Some(what);
                }
            }
            Step::Return => self.return_to_service("returned", "policy", "proven", None),
        }
        if let Some(wish) = self.wish.take() {
            self.grant(&wish, findings, proof);
        }
        self.look_at_slurm(findings, proof, now);
        self.status.service.clone_from(&self.service.record.out);
        self.tell_slurm(now);
    }

    /// The oldest of what findings are made of. What is stuck proves nothing.
    fn proof(&self) -> Proof {
        let stuck = !self.stuck().is_empty();
        Proof {
            probed: self.sampler.figures().probed().filter(|_| !stuck),
            unproven_slots: self.task_files.holdings().unproven_slots,
        }
    }

    fn leave_service(&mut self, reasons: Vec<Reason>) {
        let now = self.clock.seconds();
        let out = self.service.record.out.get_or_insert(OutOfService {
            since: now,
            reasons: Vec::new(),
            waits_for: None,
        });
        out.reasons.extend(reasons);
        let why = out.why();
        tracing::warn!("this node goes out of service: {why}");
        (self.service.record.in_slurm, self.service.record.shown) = (true, false);
        self.note("out", "policy", &why, None);
        (self.service.told, self.service.again_at) = (false, None);
    }

    fn return_to_service(&mut self, what: &str, by: &str, why: &str, wish: Option<&str>) {
        tracing::warn!(by, "this node returns to service: {why}");
        self.service.record.out = None;
        self.service.record.shown = false;
        self.note(what, by, why, wish);
        (self.service.told, self.service.again_at) = (false, None);
    }

    /// What a person wishes: with proof at once, without only by force, which is on record.
    fn grant(&mut self, wish: &ServiceWish, findings: &[Finding], proof: Proof) {
        let ServiceWish { id, by, reason, .. } = wish;
        // Whoever wished waits no longer than that; what comes true afterwards surprises everybody.
        if self.clock.seconds().abs_diff(wish.at) > WISH_SECONDS {
            let why = format!("the wish is not of the last {WISH_SECONDS} s; ask again");
            return self.note("refused", by, &why, Some(id));
        }
        if self.service.record.out.is_none() {
            if !wish.force {
                return self.note("refused", by, "the node is in service", Some(id));
            }
            // Where findings drain nothing, what is gone for good is accepted all the same.
            self.note("forced", by, reason, Some(id));
            self.forget_devices();
            return;
        }
        match self.service.watch.unproven(proof) {
            None => self.return_to_service("returned", by, reason, Some(id)),
            Some(missing) if !wish.force => {
                self.note("refused", by, &format!("it waits for {missing}"), Some(id));
            }
            Some(missing) => {
                self.force(by, reason, &missing, findings, Some(id));
                self.forget_devices();
            }
        }
    }

    /// Back to service in spite of what `findings` say, until they have ended once.
    fn force(&mut self, by: &str, reason: &str, missing: &str, findings: &[Finding], wish: Option<&str>) {
        let policy = &self.config.policy;
        let held = findings.iter().filter(|f| policy.after(f.kind).is_some());
        self.service.record.pardoned = held.map(Reason::of).collect();
        let why = format!("{reason} (without {missing})");
        self.return_to_service("forced", by, &why, wish);
    }

    /// What Slurm shows of our drain. Once it has shown it and then gives the node jobs, though nobody has told it to
    /// from here, the site's administrator has returned the node, as by `service return --force`. A drain of somebody
    /// else's that has ended was never ours: Slurm is told again.
    fn look_at_slurm(&mut self, findings: &[Finding], proof: Proof, now: Instant) {
        let s = &self.service;
        if s.record.out.is_none() || !s.told || s.talks() || self.orders.talks_to_slurm() {
            return;
        }
        let figure = &self.sampler.figures().slurm;
        let settled = s.told_at.and_then(|told| told.checked_add(SETTLED));
        let newer = settled.is_none_or(|settled| figure.taken().is_some_and(|at| at > settled));
        let Some(Answer::Said(node)) = figure.fresh(now) else {
            return;
        };
        match node.state {
            SlurmState::Drain if !s.record.shown && drained_by(node) == Some(By::Health) => {
                self.service.record.shown = true;
                self.keep_service();
            }
            SlurmState::Idle | SlurmState::Allocated | SlurmState::Mixed if newer && s.record.shown => {
                self.forgive(findings, proof);
            }
            SlurmState::Idle | SlurmState::Allocated | SlurmState::Mixed if newer => {
                (self.service.told, self.service.again_at) = (false, None);
            }
            _ => {}
        }
    }

    fn forgive(&mut self, findings: &[Finding], proof: Proof) {
        let (by, reason) = ("Slurm", "an administrator has resumed the node there");
        match self.service.watch.unproven(proof) {
            None => self.return_to_service("returned", by, reason, None),
            Some(missing) => self.force(by, reason, &missing, findings, None),
        }
        // There is nothing left to undo.
        (self.service.told, self.service.record.in_slurm) = (true, false);
        self.keep_service();
    }

    fn note(&mut self, what: &str, by: &str, why: &str, wish: Option<&str>) {
        let at = self.clock.seconds();
        self.service.record.note(ServiceChange {
            at,
            what: what.to_owned(),
            by: by.to_owned(),
            why: why.to_owned(),
            wish: wish.map(str::to_owned),
        });
        self.keep_service();
    }

    /// What was there counts no more; where that cannot be noted, a person wishes it again.
    fn forget_devices(&mut self) {
        let state = self.state.clone();
        let forget = move || {
            state.accept_devices();
            Ok(())
        };
        if let Err(e) = self.keep_now(("devices", &self.clock.seconds()), forget) {
            tracing::warn!(
                "devices that are gone are not forgotten: {e}; once it does, return the node to service by force again"
            );
        }
    }

    fn keep_service(&mut self) {
        let (record, state) = (self.service.record.clone(), self.state.clone());
        // What the return waits for changes with each look, and a slow disk's late answer is about the last one.
        let mut what = record.clone();
        if let Some(out) = &mut what.out {
            out.waits_for = None;
        }
        let kept = self.keep_now(("service", &what), move || record.save(&state));
        self.service.save_at = kept.is_err().then(|| instant() + SAVE_AGAIN);
        match kept {
            Ok(()) => self.over("service", "whether the node is in service can be kept again"),
            Err(e) => self.warn_once(
                "service",
                &format!("whether the node is in service is not kept over a restart: {e}"),
            ),
        }
    }

    fn tell_slurm(&mut self, now: Instant) {
        // An order that talks to Slurm ends first: what is told depends on what it leaves.
        let busy = self.orders.talks_to_slurm();
        let s = &mut self.service;
        if busy || s.told || s.talks() || s.again_at.is_some_and(|at| now < at) {
            return;
        }
        s.again_at = None;
        let control = Control::new(self.config.slurm.clone(), &self.config.roots, By::Health)
            .by_helper(self.config.commands.helper.clone());
        let work = match &s.record.out {
            Some(out) => Work::Drain(Box::new(control), out.why()),
            None => {
                let ordered = self.orders.journal.drain.as_ref();
                let other = ordered.map(|d| (By::Order, d.reason.clone().unwrap_or_default()));
                Work::Resume(Box::new(control.but(other)))
            }
        };
        let ends = s.ends.clone();
        // One at a time: there is room for its end.
        match work.begin(move |end| drop(ends.try_send(end))) {
            Ok(()) => s.telling = Some(s.record.out.is_some()),
            Err(e) => self.slurm_told(End::Again(format!("no thread: {e}"))),
        }
    }

    /// A thread has told Slurm, or could not.
    pub(in crate::run) fn slurm_told(&mut self, end: End) {
        let told = self.service.telling.take();
        if told.is_some_and(|out| out != self.service.record.out.is_some()) {
            // Another state by now: Slurm hears of it at once.
            (self.service.told, self.service.again_at) = (false, Some(instant()));
            return;
        }
        match end {
            End::Done(text) => {
                tracing::info!("service: {text}");
                (self.service.told, self.service.told_at) = (true, Some(instant()));
                let out = self.service.record.out.is_some();
                self.service.record.in_slurm = out;
                self.keep_service();
                self.over("service_slurm", "Slurm knows whether this node is in service");
            }
            End::Again(text) | End::Failed(text) => {
                self.warn_once("service_slurm", &format!("Slurm does not know yet: {text}"));
                self.service.again_at = instant().checked_add(AGAIN);
            }
            End::Found(..) | End::Restart => {}
        }
    }
}
