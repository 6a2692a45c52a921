//! What a sampler knows from before: of another process, or of collectors by another configuration.

use super::{Sampler, Slot};
use crate::probe::network::LinkDrivers;
use crate::probe::slurm::Drained;
use crate::sample::{Category, Figures, Sources};

impl Sampler {
    /// With the drain that Slurm told an agent here before this one.
    #[must_use]
    pub fn knowing(mut self, drained: Option<Drained>) -> Self {
        self.figures.drained = drained;
        self
    }

    /// Takes over from one whose collectors had `from` as their sources; these have `to`. Its figures stay, each as old as
    /// it is, until they are measured anew, but for those of another file system and of other checks; so do those who
    /// measure use since the last look; of those who share what they read all or, where one is away, none. What links'
    /// drivers have said stays, and which of them do not answer, whoever of those that share it is away.
    pub fn take_over(&mut self, mut former: Self, from: &Sources, to: &Sources) {
        self.read = former.take_read();
        former.call_off();
        let Self {
            figures, mut slots, ..
        } = former;
        self.figures = figures;
        let unknown = Figures::default();
        if from.storage_path != to.storage_path {
            self.figures.storage = unknown.storage;
        }
        if from.checks != to.checks {
            // Those of before are no proof that the node may return to service.
            self.figures.checks = unknown.checks;
        }
        if from.gpu != to.gpu {
            self.figures.had_gpus = unknown.had_gpus;
        }
        if from.roots != to.roots {
            return;
        }
        let drivers = drivers_of(&mut slots).next().cloned();
        let with: Vec<_> = slots.iter().map(|old| self.goes_on(old)).collect();
        let away = |(old, with): (&Slot, &Option<_>)| with.filter(|_| old.collector.is_none());
        // They share what they read: one of before beside a new one would know nothing of it.
        let left: Vec<_> = slots.iter().zip(&with).filter_map(away).collect();
        let at_home = |with: &Option<_>| with.is_some_and(|with| !left.contains(&with));
        for (old, _) in slots.into_iter().zip(with).filter(|(_, with)| at_home(with)) {
            let mut all = self.slots.iter_mut();
            if let Some(new) = all.find(|new| name(new) == name(&old)) {
                (new.collector, new.last) = (old.collector, old.last);
            }
        }
        if let Some(drivers) = drivers {
            for theirs in drivers_of(&mut self.slots) {
                theirs.clone_from(&drivers);
            }
        }
    }

    /// With which others a former collector goes on here.
    fn goes_on(&self, old: &Slot) -> Option<&'static str> {
        let new = self.slots.iter().find(|new| name(new) == name(old))?;
        new.collector.as_ref()?.goes_on()
    }
}

/// Where those that are at home have what links' drivers say.
fn drivers_of(slots: &mut [Slot]) -> impl Iterator<Item = &mut LinkDrivers> {
    let all = slots.iter_mut();
    all.filter_map(|slot| slot.collector.as_mut()?.link_drivers())
}

/// Which collector it is, of whatever configuration.
fn name(slot: &Slot) -> (Category, &'static str) {
    (slot.category, slot.name)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::key::NodeKey;
    use crate::probe::checks::Checks;
    use crate::probe::latency::Measured;
    use crate::probe::slurm::Answer;
    use crate::probe::storage::Storage;
    use crate::sample::{Collector, Reading};

    /// Tells use from its second look on, as counters do.
    #[derive(Default)]
    struct Use(Option<u8>);
    impl Collector for Use {
        fn name(&self) -> &'static str {
            "use"
        }
        fn category(&self) -> Category {
            Category::Utilization
        }
        fn goes_on(&self) -> Option<&'static str> {
            Some("use")
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            vec![Reading::Cpu(self.0.replace(7))]
        }
    }

    fn sampler() -> Sampler {
        Sampler::inline(vec![Box::new(Use::default())])
    }

    fn measured() -> Vec<Measured> {
        vec![Measured {
            peer: hpc_schema::gateway::Peer {
                node_id: "node-0002".parse().unwrap(),
                address: "192.0.2.2".into(),
                port: 9461,
                public_key: NodeKey::from_seed([2; 32]).unwrap().public(),
            },
            latency_us: Some(80),
            loss_percent: 0,
            measured_at: 1,
        }]
    }

    #[tokio::test]
    async fn collectors_by_another_configuration_forget_nothing_that_still_holds() {
        let now = Instant::now();
        let (from, mut to) = (Sources::default(), Sources::default());
        let mut former = sampler();
        former.put(Reading::Peers(measured()), now);
        former.put(Reading::Checks(Checks::default()), now);
        let (total, available, used) = (2, 1, 1);
        let storage = Storage {
            total,
            available,
            used,
        };
        former.put(Reading::Storage(Some(storage)), now);
        former.put(Reading::Temperature(Some(50)), now);
        former.put(Reading::Slurm(Answer::Silent), now);
        for _ in 0..2 {
            former.sample(|_| true, Duration::from_secs(1)).await;
        }
        to.checks.dir = "/other".into();
        let mut next = sampler();
        next.take_over(former, &from, &to);
        let f = next.figures();
        assert_eq!(f.peers.fresh(now), Some(&measured()));
        assert_eq!(
            (f.temperature.fresh(now), f.slurm.fresh(now)),
            (Some(&50), Some(&Answer::Silent))
        );
        assert!(f.storage.fresh(now).is_some() && f.checks.taken().is_none());
        // Counters go on from the last look.
        next.sample(|_| true, Duration::from_secs(1)).await;
        assert_eq!(next.figures().cpu.fresh(Instant::now()), Some(&7));

        let (from, mut to) = (to.clone(), to);
        to.storage_path = "/other".into();
        let mut last = sampler();
        last.take_over(next, &from, &to);
        assert!(last.figures().storage.taken().is_none() && last.figures().peers.taken().is_some());
    }

    /// One that goes on with those of its kind.
    struct Of(&'static str, Option<&'static str>);
    impl Collector for Of {
        fn name(&self) -> &'static str {
            self.0
        }
        fn category(&self) -> Category {
            Category::Utilization
        }
        fn goes_on(&self) -> Option<&'static str> {
            self.1
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn one_that_hangs_keeps_those_from_going_on_with_whom_it_shares_and_no_others() {
        let all = || {
            let kinds = [
                ("utilization", Some("use")),
                ("link speeds", Some("use")),
                ("fabric", Some("fabric")),
                ("jobs", None),
            ];
            let each = kinds.map(|(name, kind)| -> Box<dyn Collector> { Box::new(Of(name, kind)) });
            Sampler::inline(each.into())
        };
        let gone_on = async |away: Option<&str>| -> Vec<&str> {
            let (mut former, mut next, sources) = (all(), all(), Sources::default());
            former.sample(|_| true, Duration::from_secs(1)).await;
            for slot in former.slots.iter_mut().filter(|s| Some(s.name) == away) {
                slot.collector = None;
            }
            next.take_over(former, &sources, &sources);
            let went = next.slots.iter().filter(|s| s.last.is_some());
            went.map(|s| s.name).collect()
        };
        assert_eq!(gone_on(None).await, ["utilization", "link speeds", "fabric"]);
        assert_eq!(gone_on(Some("link speeds")).await, ["fabric"]);
        assert_eq!(gone_on(Some("fabric")).await, ["utilization", "link speeds"]);
        assert_eq!(
            gone_on(Some("jobs")).await,
            ["utilization", "link speeds", "fabric"]
        );
    }
}
