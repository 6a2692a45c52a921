//! How large the next transaction may be and what it pays, learnt from how the last ones ended. Pure.

use hpc_chain::code::Verdict;
use hpc_chain::gas::{Adjustment, GasPrice};

/// Most halvings: a thousandth.
const MOST_HALVINGS: u32 = 10;
/// No transaction of one report is smaller.
const LEAST_BYTES: u64 = 2_000;
/// A learnt cap grows by a quarter after so many that came near it took effect: a limit that was lifted is found again.
const GROWS_AFTER: u32 = 32;
/// A cap that had grown too large grows after four times as many the next time, up to this: a limit that stays costs a refusal
/// in thousands of transactions.
const GROWS_SELDOM: u32 = 8_192;

/// What the gas of reports is multiplied with as a rule: little in them is left to chance.
pub(super) fn usual_for_reports() -> Adjustment {
    "1.1".parse().unwrap_or_default()
}

/// What a signing key has learnt.
#[derive(Debug, Clone)]
pub(super) struct Sizing {
    halvings: u32,
    /// A transaction of twice this size was refused, or this is what has grown from that.
    most_bytes: Option<u64>,
    /// Transactions of more than half of it that took effect since it last changed.
    near: u32,
    /// So many of these let it grow.
    patience: u32,
    /// It has grown since it was last refused.
    grew: bool,
    /// The last one ran out of gas.
    short_of_gas: bool,
    price: GasPrice,
    /// The price is raised up to this where a node asks for more.
    ceiling: Option<GasPrice>,
}

impl Sizing {
    pub(super) fn new(price: GasPrice, ceiling: Option<GasPrice>) -> Self {
        Self {
            halvings: 0,
            most_bytes: None,
            near: 0,
            patience: GROWS_AFTER,
            grew: false,
            short_of_gas: false,
            price,
            ceiling,
        }
    }

    /// So many of `count`, at least one.
    pub(super) fn items(&self, count: usize) -> usize {
        (count >> self.halvings.min(31)).max(1)
    }

    /// The cap of a transaction in bytes, at most `configured`.
    pub(super) fn bytes(&self, configured: u64) -> u64 {
        self.most_bytes.map_or(configured, |most| most.min(configured))
    }

    /// What simulated or fitted gas is multiplied with.
    pub(super) fn adjustment(&self, usual: Adjustment) -> Adjustment {
        if self.short_of_gas {
            "2".parse().unwrap_or(usual)
        } else {
            usual
        }
    }

    /// Whether more gas is given already than a simulation asks for.
    pub(super) fn is_short_of_gas(&self) -> bool {
        self.short_of_gas
    }

    pub(super) fn price(&self) -> &GasPrice {
        &self.price
    }

    /// One of `bytes` took effect.
    pub(super) fn included(&mut self, bytes: u64) {
        self.halvings = 0;
        self.short_of_gas = false;
        let Some(most) = self.most_bytes.filter(|most| bytes > most / 2) else {
            return;
        };
        self.near += 1;
        if self.near >= self.patience {
            (self.near, self.grew) = (0, true);
            self.most_bytes = Some(most.saturating_add(most / 4));
        }
    }

    /// The next one is to be half as large: one of its items is at fault, or there are too many.
    pub(super) fn halve(&mut self) {
        self.halvings = (self.halvings + 1).min(MOST_HALVINGS);
    }

    /// One item was alone at fault and is gone.
    pub(super) fn isolated(&mut self) {
        self.halvings = 0;
    }

    /// One of `bytes` was refused, by CheckTx, by a simulation or in a block.
    pub(super) fn refused(&mut self, verdict: &Verdict, bytes: u64) {
        match verdict {
            Verdict::TxTooLarge => {
                let half = (bytes / 2).max(LEAST_BYTES);
                self.most_bytes = Some(self.most_bytes.map_or(half, |most| most.min(half)));
                self.near = 0;
                if std::mem::take(&mut self.grew) {
                    self.patience = self.patience.saturating_mul(4).min(GROWS_SELDOM);
                }
                self.halve();
            }
            Verdict::OutOfGas => {
                self.short_of_gas = true;
                self.halve();
            }
            Verdict::InsufficientFee => {
                if let Some(ceiling) = &self.ceiling {
                    self.price = self.price.raised(ceiling);
                }
            }
            Verdict::ContractError | Verdict::Other => self.halve(),
            Verdict::Accepted
            | Verdict::AlreadyInCache
            | Verdict::MempoolFull
            | Verdict::WrongSequence { .. }
            | Verdict::TimeoutHeight
            | Verdict::InsufficientFunds
            | Verdict::FeeGrant
            | Verdict::Unauthorized => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizing() -> Sizing {
        Sizing::new("0.01stake".parse().unwrap(), Some("0.02stake".parse().unwrap()))
    }

    #[test]
    fn a_transaction_that_is_too_large_is_halved_and_so_are_those_after_it() {
        let mut s = sizing();
        s.refused(&Verdict::TxTooLarge, 300_000);
        assert_eq!((s.bytes(400_000), s.items(16)), (150_000, 8));
        s.refused(&Verdict::TxTooLarge, 150_000);
        assert_eq!(s.bytes(400_000), 75_000);
        s.included(70_000);
        assert_eq!(
            (s.bytes(400_000), s.items(16)),
            (75_000, 16),
            "one that fits says nothing of larger ones"
        );
        for _ in 0..40 {
            s.refused(&Verdict::TxTooLarge, 10);
        }
        assert_eq!((s.bytes(400_000), s.items(16)), (2_000, 1));
    }

    #[test]
    fn a_cap_grows_back_by_a_quarter_once_many_near_it_took_effect_and_halves_at_the_next_refusal() {
        let mut s = sizing();
        s.refused(&Verdict::TxTooLarge, 200_000);
        let take = |s: &mut Sizing, count: u32, bytes: u64| (0..count).for_each(|_| s.included(bytes));
        // Small ones say nothing of large ones.
        take(&mut s, 1_000, 50_000);
        assert_eq!(s.bytes(400_000), 100_000);
        take(&mut s, GROWS_AFTER - 1, 90_000);
        assert_eq!(s.bytes(400_000), 100_000);
        take(&mut s, 1, 90_000);
        assert_eq!(s.bytes(400_000), 125_000);
        // The limit stands: a refusal in between, and the count begins anew.
        take(&mut s, GROWS_AFTER - 1, 120_000);
        s.refused(&Verdict::TxTooLarge, 124_000);
        assert_eq!(s.bytes(400_000), 62_000);
        // It had grown too large: the next time it takes longer.
        take(&mut s, 4 * GROWS_AFTER - 1, 60_000);
        assert_eq!(s.bytes(400_000), 62_000);
        take(&mut s, 1, 60_000);
        assert_eq!(s.bytes(400_000), 77_500);
        for _ in 0..10 {
            s.refused(&Verdict::TxTooLarge, 60_000);
            let cap = s.bytes(400_000);
            take(&mut s, GROWS_SELDOM, cap);
            assert!(s.bytes(400_000) > cap, "in the end it always does");
        }
        // It was lifted: what is configured comes back, from the least as well, and is not exceeded.
        s.refused(&Verdict::TxTooLarge, 10);
        assert_eq!(s.bytes(400_000), LEAST_BYTES);
        let mut sent = 0;
        while s.bytes(400_000) < 400_000 {
            let bytes = s.bytes(400_000);
            s.included(bytes);
            sent += 1;
            assert!(sent < 30 * GROWS_SELDOM, "{bytes}");
        }
        take(&mut s, 10_000, 400_000);
        assert_eq!(s.bytes(400_000), 400_000);
    }

    #[test]
    fn out_of_gas_splits_and_gives_more_until_one_takes_effect() {
        let (mut s, usual) = (sizing(), "1.1".parse::<Adjustment>().unwrap());
        assert_eq!(s.adjustment(usual), usual);
        s.refused(&Verdict::OutOfGas, 1_000);
        assert_eq!((s.items(100), s.adjustment(usual).apply(100)), (50, 200));
        s.included(1_000);
        assert_eq!((s.items(100), s.adjustment(usual)), (100, usual));
    }

    #[test]
    fn the_price_rises_by_a_quarter_up_to_its_ceiling_and_not_without_one() {
        let mut s = sizing();
        for expected in [
            "0.0125stake",
            "0.015625stake",
            "0.01953125stake",
            "0.02stake",
            "0.02stake",
        ] {
            s.refused(&Verdict::InsufficientFee, 1_000);
            assert_eq!(s.price().to_string(), expected);
        }
        let mut fixed = Sizing::new("0.01stake".parse().unwrap(), None);
        fixed.refused(&Verdict::InsufficientFee, 1_000);
        assert_eq!(fixed.price().to_string(), "0.01stake");
    }

    #[test]
    fn what_only_an_operator_or_time_can_mend_changes_no_size() {
        let mut s = sizing();
        for verdict in [
            Verdict::InsufficientFunds,
            Verdict::MempoolFull,
            Verdict::Unauthorized,
        ] {
            s.refused(&verdict, 1_000);
        }
        assert_eq!((s.items(50), s.bytes(400_000)), (50, 400_000));
    }
}
