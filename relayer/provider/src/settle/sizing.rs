//! How large the next transaction may be and what it pays, learnt from how the last ones ended. Pure.

use hpc_chain::code::Verdict;
use hpc_chain::gas::{Adjustment, GasPrice};

/// Most halvings: a thousandth.
const MOST_HALVINGS: u32 = 10;
/// No transaction of one report is smaller.
const LEAST_BYTES: u64 = 2_000;
/// A learnt cap grows by a quarter after so many that came near it took effect: a limit that was lifted is found again.
const TRIED_AFTER: u32 = 32;
/// A price that rose comes down by a quarter after so many, for one that pays too little holds all up for its whole life.
const CHEAPER_AFTER: u32 = 512;
/// And not before so long: what a chain demands it demands for long.
const PRICE_KEPT_MS: u64 = 24 * 3600 * 1000;
/// What was too much is tried after four times as many the next time, up to this: a limit that stays costs a refusal in
/// thousands of transactions.
const TRIED_SELDOM: u32 = 8_192;

/// What the gas of reports is multiplied with as a rule: little in them is left to chance.
pub(super) fn usual_for_reports() -> Adjustment {
    "1.1".parse().unwrap_or_default()
}

/// When what a refusal has taught is put to the test again.
#[derive(Debug, Clone)]
struct Patience {
    /// Transactions that took effect since the last change.
    taken: u32,
    /// So many of these are waited for.
    most: u32,
    /// It was put to the test since it was last refused.
    tried: bool,
}

impl Patience {
    fn of(most: u32) -> Self {
        Self {
            taken: 0,
            most,
            tried: false,
        }
    }

    /// One more took effect; whether it is time.
    fn is_over(&mut self) -> bool {
        self.taken = self.taken.saturating_add(1);
        let over = self.taken >= self.most;
        if over {
            (self.taken, self.tried) = (0, true);
        }
        over
    }

    /// It was refused: longer, if that came of a test.
    fn refused(&mut self) {
        self.taken = 0;
        if std::mem::take(&mut self.tried) {
            self.most = self.most.saturating_mul(4).min(TRIED_SELDOM);
        }
    }
}

/// A price above the configured one, which a node has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) price: GasPrice,
    /// When it was first paid, UNIX milliseconds.
    pub(super) since: Option<u64>,
}

/// What a signing key has learnt.
#[derive(Debug, Clone)]
pub(super) struct Sizing {
    halvings: u32,
    /// A transaction of twice this size was refused, or this is what has grown from that.
    most_bytes: Option<u64>,
    /// Of those of more than half of it.
    larger: Patience,
    /// The last one ran out of gas.
    short_of_gas: bool,
    /// As configured.
    floor: GasPrice,
    price: GasPrice,
    cheaper: Patience,
    /// When one was first paid for since the price rose, UNIX milliseconds.
    paid_since: Option<u64>,
    /// The price is raised up to this where a node asks for more.
    ceiling: Option<GasPrice>,
    /// The most that a node has asked for since a transaction last took effect, or the price rose.
    asked: Option<GasPrice>,
}

impl Sizing {
    pub(super) fn new(price: GasPrice, ceiling: Option<GasPrice>) -> Self {
        Self {
            halvings: 0,
            most_bytes: None,
            larger: Patience::of(TRIED_AFTER),
            short_of_gas: false,
            floor: price.clone(),
            price,
            cheaper: Patience::of(CHEAPER_AFTER),
            paid_since: None,
            ceiling,
            asked: None,
        }
    }

    /// With a price that was learnt before, as far as the configuration allows it now.
    pub(super) fn at(mut self, learnt: Option<Learnt>) -> Self {
        if let (Some(learnt), Some(ceiling)) = (learnt, &self.ceiling)
            && self.floor.is_below(&learnt.price)
        {
            self.price = lower_of(&learnt.price, ceiling).clone();
            self.paid_since = learnt.since;
        }
        self
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

    /// The price, where it is above the configured one.
    pub(super) fn learnt(&self) -> Option<Learnt> {
        self.is_raised().then(|| Learnt {
            price: self.price.clone(),
            since: self.paid_since,
        })
    }

    fn is_raised(&self) -> bool {
        self.floor.is_below(&self.price)
    }

    /// Whether the next one pays more if this one is refused for its fee.
    pub(super) fn can_rise(&self) -> bool {
        self.ceiling
            .as_ref()
            .is_some_and(|ceiling| self.price.is_below(ceiling))
    }

    /// A node has refused a transaction and would have taken it at this price.
    pub(super) fn asks(&mut self, price: GasPrice) {
        if self.asked.as_ref().is_none_or(|asked| asked.is_below(&price)) {
            self.asked = Some(price);
        }
    }

    /// One took effect at the present price, whatever it was for.
    pub(super) fn paid(&mut self, now_ms: u64) {
        self.asked = None;
        if !self.is_raised() {
            return;
        }
        // A day that began by a clock that was ahead begins now.
        let since = self.paid_since.map_or(now_ms, |since| since.min(now_ms));
        self.paid_since = Some(since);
        if now_ms.saturating_sub(since) >= PRICE_KEPT_MS && self.cheaper.is_over() {
            self.price = self.price.lowered(&self.floor);
        }
    }

    /// One of `bytes` took effect.
    pub(super) fn included(&mut self, bytes: u64, now_ms: u64) {
        self.paid(now_ms);
        self.halvings = 0;
        self.short_of_gas = false;
        let Some(most) = self.most_bytes.filter(|most| bytes > most / 2) else {
            return;
        };
        if self.larger.is_over() {
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
                self.larger.refused();
                self.halve();
            }
            Verdict::OutOfGas => {
                self.short_of_gas = true;
                self.halve();
            }
            Verdict::InsufficientFee => self.raise(),
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

    /// At once to what was asked for: each refused transaction has to live to its timeout height. A quarter more at least, for
    /// a node may not say what it wants.
    fn raise(&mut self) {
        let asked = self.asked.take();
        let Some(ceiling) = &self.ceiling else {
            return;
        };
        let more = self.price.raised(ceiling);
        let asked = asked.as_ref().map(|asked| lower_of(asked, ceiling));
        self.price = asked
            .filter(|asked| more.is_below(asked))
            .unwrap_or(&more)
            .clone();
        self.cheaper.refused();
        self.paid_since = None;
    }
}

fn lower_of<'a>(a: &'a GasPrice, b: &'a GasPrice) -> &'a GasPrice {
    if b.is_below(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

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
        s.included(70_000, NOW);
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
        let take = |s: &mut Sizing, count: u32, bytes: u64| (0..count).for_each(|_| s.included(bytes, NOW));
        // Small ones say nothing of large ones.
        take(&mut s, 1_000, 50_000);
        assert_eq!(s.bytes(400_000), 100_000);
        take(&mut s, TRIED_AFTER - 1, 90_000);
        assert_eq!(s.bytes(400_000), 100_000);
        take(&mut s, 1, 90_000);
        assert_eq!(s.bytes(400_000), 125_000);
        // The limit stands: a refusal in between, and the count begins anew.
        take(&mut s, TRIED_AFTER - 1, 120_000);
        s.refused(&Verdict::TxTooLarge, 124_000);
        assert_eq!(s.bytes(400_000), 62_000);
        // It had grown too large: the next time it takes longer.
        take(&mut s, 4 * TRIED_AFTER - 1, 60_000);
        assert_eq!(s.bytes(400_000), 62_000);
        take(&mut s, 1, 60_000);
        assert_eq!(s.bytes(400_000), 77_500);
        for _ in 0..10 {
            s.refused(&Verdict::TxTooLarge, 60_000);
            let cap = s.bytes(400_000);
            take(&mut s, TRIED_SELDOM, cap);
            assert!(s.bytes(400_000) > cap, "in the end it always does");
        }
        // It was lifted: what is configured comes back, from the least as well, and is not exceeded.
        s.refused(&Verdict::TxTooLarge, 10);
        assert_eq!(s.bytes(400_000), LEAST_BYTES);
        let mut sent = 0;
        while s.bytes(400_000) < 400_000 {
            let bytes = s.bytes(400_000);
            s.included(bytes, NOW);
            sent += 1;
            assert!(sent < 30 * TRIED_SELDOM, "{bytes}");
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
        s.included(1_000, NOW);
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
    fn the_price_is_at_once_the_highest_that_a_node_asked_for_up_to_its_ceiling() {
        let price = |text: &str| text.parse::<GasPrice>().unwrap();
        let raised = |asked: &[&str]| {
            let mut s = sizing();
            asked.iter().for_each(|a| s.asks(price(a)));
            s.refused(&Verdict::InsufficientFee, 1_000);
            s.price().to_string()
        };
        assert_eq!(raised(&["0.015stake", "0.017stake", "0.016stake"]), "0.017stake");
        assert_eq!(raised(&["0.011stake"]), "0.0125stake");
        assert_eq!(raised(&["0.1stake"]), "0.02stake");
        assert_eq!(raised(&["0.1atom"]), "0.0125stake");
        // What was asked for before one was taken says nothing of the next refusal.
        let mut s = sizing();
        s.asks(price("0.019stake"));
        s.included(1_000, NOW);
        s.refused(&Verdict::InsufficientFee, 1_000);
        assert_eq!(s.price().to_string(), "0.0125stake");
    }

    #[test]
    fn a_price_that_rose_comes_down_by_a_quarter_a_day_later_and_later_each_time_that_is_refused() {
        let mut s = sizing();
        let pay = |s: &mut Sizing, count: u32, at: u64| (0..count).for_each(|_| s.included(1_000, at));
        let refuse = |s: &mut Sizing| {
            s.asks("0.018stake".parse().unwrap());
            s.refused(&Verdict::InsufficientFee, 1_000);
            assert_eq!(s.price().to_string(), "0.018stake");
        };
        refuse(&mut s);
        // However many there are in a day, what was demanded is paid.
        pay(&mut s, 100_000, NOW);
        pay(&mut s, 100_000, NOW + PRICE_KEPT_MS - 1);
        assert_eq!(s.price().to_string(), "0.018stake");
        let day = NOW + PRICE_KEPT_MS;
        pay(&mut s, CHEAPER_AFTER - 1, day);
        assert_eq!(s.price().to_string(), "0.018stake");
        pay(&mut s, 1, day);
        assert_eq!(s.price().to_string(), "0.0135stake");
        // It is needed still: another day.
        refuse(&mut s);
        pay(&mut s, 100_000, day);
        assert_eq!(s.price().to_string(), "0.018stake");
        let day = day + PRICE_KEPT_MS;
        pay(&mut s, 4 * CHEAPER_AFTER - 1, day);
        assert_eq!(s.price().to_string(), "0.018stake");
        pay(&mut s, 1, day);
        assert_eq!(s.price().to_string(), "0.0135stake");
        // It is not any more: down to what is configured, and no further.
        pay(&mut s, 4 * CHEAPER_AFTER, day);
        assert_eq!(s.price().to_string(), "0.010125stake");
        pay(&mut s, 4 * CHEAPER_AFTER, day);
        assert_eq!((s.price().to_string().as_str(), s.learnt()), ("0.01stake", None));
        pay(&mut s, 10_000, day);
        assert_eq!(s.price().to_string(), "0.01stake");
    }

    #[test]
    fn a_price_that_was_learnt_before_counts_as_far_as_it_is_configured_now() {
        let learnt = |price: &str| {
            let price = price.parse().unwrap();
            Some(Learnt { price, since: None })
        };
        let at = |price: &str| sizing().at(learnt(price)).price().to_string();
        assert_eq!(at("0.015stake"), "0.015stake");
        assert_eq!(at("0.05stake"), "0.02stake");
        assert_eq!(at("0.005stake"), "0.01stake");
        assert_eq!(at("0.015atom"), "0.01stake");
        let fixed = Sizing::new("0.01stake".parse().unwrap(), None).at(learnt("0.015stake"));
        assert_eq!(fixed.price().to_string(), "0.01stake");
        assert_eq!(sizing().at(None).learnt(), None);
    }

    #[test]
    fn the_day_of_a_price_that_rose_goes_on_over_restarts_and_ends_for_a_clock_that_was_ahead_too() {
        for began in [NOW, NOW + 30 * PRICE_KEPT_MS] {
            let mut s = sizing();
            s.refused(&Verdict::InsufficientFee, 1_000);
            s.included(1_000, began);
            for at in [NOW, NOW + PRICE_KEPT_MS / 2, NOW + PRICE_KEPT_MS] {
                s = sizing().at(s.learnt());
                s.included(1_000, at);
                assert_eq!(s.price().to_string(), "0.0125stake");
            }
            (1..CHEAPER_AFTER).for_each(|_| s.included(1_000, NOW + PRICE_KEPT_MS));
            assert_eq!(s.price().to_string(), "0.01stake");
        }
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
