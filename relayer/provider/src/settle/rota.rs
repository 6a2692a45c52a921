//! Whose turn it is of the chain's duties, and how much of one goes into a transaction. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};

use hpc_chain::code::Verdict;
use hpc_chain::gas::Adjustment;
use hpc_schema::id::ClusterId;

use super::apart::Apart;
use super::sizing::Sizing;
use super::store::Kind;
use crate::clock::Steady;

/// Duties that let others pass, at most.
const MOST_PUT_OFF: usize = 256;
/// What was too large is not tried again for so long. Others' transactions that take effect say nothing about it.
const SIZE_KEPT_MS: u64 = 600_000;

/// Something that the chain needs done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// Silent nodes of this cluster are stepped.
    Sweep(ClusterId),
    /// Old records are removed.
    Prune,
}

impl Duty {
    /// What a transaction of this kind is for; none: no duty.
    pub(super) fn of(kind: Kind, cluster: Option<&ClusterId>) -> Option<Self> {
        match kind {
            Kind::Sweep => cluster.cloned().map(Self::Sweep),
            Kind::Prune => Some(Self::Prune),
            Kind::Reports | Kind::Register => None,
        }
    }

    /// Kind and cluster of its transaction.
    pub(super) fn into_job(self) -> (Kind, Option<ClusterId>) {
        match self {
            Self::Sweep(cluster) => (Kind::Sweep, Some(cluster)),
            Self::Prune => (Kind::Prune, None),
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sweep(cluster) => write!(f, "sweep of {cluster}"),
            Self::Prune => f.write_str("prune"),
        }
    }
}

/// Takes turns: one cluster after the other, and sweeps and prunes. What is not taken lets others pass for a growing while.
#[derive(Debug)]
pub(super) struct Rota {
    put_off: Apart<Duty>,
    sizes: BTreeMap<Duty, Size>,
    /// A duty's size as long as nothing is learnt of it. Prices the key's own sizing knows.
    fresh: Sizing,
    /// The last sweep.
    swept: Option<Duty>,
    /// A prune goes before the next sweep.
    prune_first: bool,
}

/// What was learnt of a duty that was too large.
#[derive(Debug)]
struct Size {
    sizing: Sizing,
    until: Steady,
}

impl Rota {
    /// Nothing is known of any.
    pub(super) fn new(fresh: Sizing) -> Self {
        Self {
            put_off: Apart::at_most(MOST_PUT_OFF),
            sizes: BTreeMap::new(),
            fresh,
            swept: None,
            prune_first: false,
        }
    }

    /// The one of those due whose turn it is now, if any may go.
    pub(super) fn next(&mut self, due: &BTreeSet<Duty>, now: Steady) -> Option<Duty> {
        self.sizes.retain(|_, size| size.until > now);
        let may = |duty: &Duty| !self.put_off.holds(duty, now);
        let prune = due.get(&Duty::Prune).filter(|d| may(d));
        let after = self.swept.iter();
        let after = after.flat_map(|last| due.range((Excluded(last.clone()), Unbounded)));
        let sweep = after.chain(due).find(|d| **d != Duty::Prune && may(d));
        let next = if self.prune_first {
            prune.or(sweep)
        } else {
            sweep.or(prune)
        };
        let next = next?.clone();
        self.prune_first = next != Duty::Prune;
        if self.prune_first {
            self.swept = Some(next.clone());
        }
        Some(next)
    }

    /// Those that let others pass and are not due any more, which they need not then.
    pub(super) fn keep(&mut self, due: &BTreeSet<Duty>) -> Vec<Duty> {
        self.put_off.retain(|duty| due.contains(duty))
    }

    /// It is not taken; whether it was so before.
    pub(super) fn put_off(&mut self, duty: &Duty, now: Steady) -> bool {
        // With too many they take turns all the same.
        self.put_off.put(duty.clone(), now).unwrap_or(false)
    }

    /// It took effect; whether it let others pass before.
    pub(super) fn taken(&mut self, duty: &Duty) -> bool {
        self.put_off.remove(duty)
    }

    /// So many of `most` go into its next transaction, at least one.
    pub(super) fn items(&self, duty: &Duty, most: usize) -> usize {
        let size = self.sizes.get(duty);
        size.map_or(most, |size| size.sizing.items(most))
    }

    /// What its simulated gas is multiplied with.
    pub(super) fn adjustment(&self, duty: &Duty) -> Adjustment {
        let (size, usual) = (self.sizes.get(duty), Adjustment::default());
        size.map_or(usual, |size| size.sizing.adjustment(usual))
    }

    /// Whether it is given more gas already than a simulation asks for.
    pub(super) fn is_short_of_gas(&self, duty: &Duty) -> bool {
        let size = self.sizes.get(duty);
        size.is_some_and(|size| size.sizing.is_short_of_gas())
    }

    /// Its next transaction is to be half as large.
    pub(super) fn halve(&mut self, duty: &Duty, now: Steady) {
        self.sizing(duty, now).halve();
    }

    /// One of `bytes` was refused, by CheckTx or in a block.
    pub(super) fn refused(&mut self, duty: &Duty, verdict: &Verdict, bytes: u64, now: Steady) {
        self.sizing(duty, now).refused(verdict, bytes);
    }

    fn sizing(&mut self, duty: &Duty, now: Steady) -> &mut Sizing {
        let until = now.after(SIZE_KEPT_MS);
        let size = self.sizes.entry(duty.clone()).or_insert_with(|| Size {
            sizing: self.fresh.clone(),
            until,
        });
        size.until = until;
        &mut size.sizing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rota() -> Rota {
        Rota::new(Sizing::new("0stake".parse().unwrap(), None))
    }

    fn sweep(n: u32) -> Duty {
        Duty::Sweep(format!("hpc-cluster-{n}").parse().unwrap())
    }

    #[test]
    fn clusters_take_turns_and_a_prune_goes_between_two_sweeps() {
        let mut rota = rota();
        let mut due = BTreeSet::from([sweep(1), sweep(2), sweep(3), Duty::Prune]);
        let turns: Vec<_> = (0..7).filter_map(|n| rota.next(&due, Steady(n))).collect();
        let wanted = [
            sweep(1),
            Duty::Prune,
            sweep(2),
            Duty::Prune,
            sweep(3),
            Duty::Prune,
            sweep(1),
        ];
        assert_eq!(turns, wanted);
        due.remove(&Duty::Prune);
        let turns: Vec<_> = (0..3).filter_map(|n| rota.next(&due, Steady(n))).collect();
        assert_eq!(turns, [sweep(2), sweep(3), sweep(1)]);
        let prune = BTreeSet::from([Duty::Prune]);
        assert_eq!(rota.next(&prune, Steady(9)), Some(Duty::Prune));
        assert_eq!(
            rota.next(&prune, Steady(9)),
            Some(Duty::Prune),
            "alone it is always its turn"
        );
        assert_eq!(rota.next(&BTreeSet::new(), Steady(9)), None);
    }

    #[test]
    fn a_sweep_that_keeps_failing_lets_the_others_and_prunes_have_their_turn() {
        let mut rota = rota();
        let due = BTreeSet::from([sweep(1), sweep(2), Duty::Prune]);
        let (mut now, mut had) = (Steady(0), BTreeMap::new());
        for _ in 0..60 {
            now = now.after(10_000);
            let Some(next) = rota.next(&due, now) else {
                continue;
            };
            if next == sweep(1) {
                rota.put_off(&next, now);
            }
            *had.entry(next).or_insert(0) += 1;
        }
        assert!(had[&sweep(2)] >= 15 && had[&Duty::Prune] >= 20, "{had:?}");
        assert!((5..20).contains(&had[&sweep(1)]), "{had:?}");
    }

    #[test]
    fn a_duty_alone_waits_longer_each_time_and_is_as_before_once_it_is_taken_or_not_due() {
        let mut rota = rota();
        let due = BTreeSet::from([sweep(1)]);
        let mut at = Steady(0);
        for pause in [3_000, 6_000, 12_000, 24_000, 48_000, 60_000, 60_000] {
            assert_eq!(rota.next(&due, at), Some(sweep(1)));
            assert_eq!(rota.put_off(&sweep(1), at), pause > 3_000);
            assert_eq!(rota.next(&due, at.after(pause - 1)), None);
            at = at.after(pause);
        }
        assert!(rota.taken(&sweep(1)) && !rota.taken(&sweep(1)));
        assert!(!rota.put_off(&sweep(1), at), "as if for the first time");
        assert!(rota.keep(&due).is_empty());
        assert_eq!(rota.keep(&BTreeSet::new()), [sweep(1)]);
        assert_eq!(rota.next(&due, at), Some(sweep(1)));
    }

    #[test]
    fn a_duty_that_is_too_large_is_halved_for_itself_until_it_fits_and_stays_so_for_a_while() {
        let mut rota = rota();
        let usual = Adjustment::default();
        rota.halve(&sweep(1), Steady(0));
        assert_eq!(
            (rota.items(&sweep(1), 64), rota.adjustment(&sweep(1))),
            (32, usual)
        );
        rota.refused(&sweep(1), &Verdict::OutOfGas, 300, Steady(0));
        assert!(rota.is_short_of_gas(&sweep(1)));
        assert_eq!(rota.items(&sweep(1), 64), 16);
        assert_eq!(rota.adjustment(&sweep(1)).apply(100), 200);
        assert_eq!(
            (rota.items(&sweep(2), 64), rota.items(&Duty::Prune, 32)),
            (64, 32)
        );
        for _ in 0..20 {
            rota.halve(&sweep(1), Steady(0));
        }
        assert_eq!(rota.items(&sweep(1), 64), 1);
        rota.taken(&sweep(1));
        assert_eq!(rota.next(&BTreeSet::new(), Steady(SIZE_KEPT_MS - 1)), None);
        assert_eq!(
            rota.items(&sweep(1), 64),
            1,
            "what others need says nothing of it"
        );
        assert_eq!(rota.next(&BTreeSet::new(), Steady(SIZE_KEPT_MS)), None);
        assert_eq!(
            (rota.items(&sweep(1), 64), rota.adjustment(&sweep(1))),
            (64, usual)
        );
    }
}
