//! How large the next transaction may be and what it pays, learnt from how the last ones ended. Pure.

use hpc_chain::code::Verdict;
use hpc_chain::gas::{Adjustment, GasPrice};

/// Most halvings: a thousandth.
const MOST_HALVINGS: u32 = 10;
/// No transaction of one report is smaller.
const LEAST_BYTES: u64 = 2_000;

/// What the gas of reports is multiplied with as a rule: little in them is left to chance.
pub(super) fn usual_for_reports() -> Adjustment {
    "1.1".parse().unwrap_or_default()
}

/// What a signing key has learnt.
#[derive(Debug, Clone)]
pub(super) struct Sizing {
    halvings: u32,
    /// The chain refused a transaction of twice this size: it will not take a larger one tomorrow either.
    most_bytes: Option<u64>,
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

    /// One took effect.
    pub(super) fn included(&mut self) {
        self.halvings = 0;
        self.short_of_gas = false;
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
    fn a_transaction_that_is_too_large_is_halved_and_stays_so() {
        let mut s = sizing();
        s.refused(&Verdict::TxTooLarge, 300_000);
        assert_eq!((s.bytes(400_000), s.items(16)), (150_000, 8));
        s.refused(&Verdict::TxTooLarge, 150_000);
        assert_eq!(s.bytes(400_000), 75_000);
        s.included();
        assert_eq!(
            (s.bytes(400_000), s.items(16)),
            (75_000, 16),
            "the chain's limit is no mood"
        );
        for _ in 0..40 {
            s.refused(&Verdict::TxTooLarge, 10);
        }
        assert_eq!((s.bytes(400_000), s.items(16)), (2_000, 1));
    }

    #[test]
    fn out_of_gas_splits_and_gives_more_until_one_takes_effect() {
        let (mut s, usual) = (sizing(), "1.1".parse::<Adjustment>().unwrap());
        assert_eq!(s.adjustment(usual), usual);
        s.refused(&Verdict::OutOfGas, 1_000);
        assert_eq!((s.items(100), s.adjustment(usual).apply(100)), (50, 200));
        s.included();
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
