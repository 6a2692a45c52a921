//! Money in integers: gas prices, fees, adjustments. No float touches anything that is paid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Decimal places of the SDK's `Dec`.
const PLACES: u32 = 18;
const ONE: u128 = 1_000_000_000_000_000_000;

/// A text that is not an amount, price or factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a coin.
    #[error("{0:?} is not an amount with its denomination, such as 1000stake")]
    Coin(String),
    /// Not a price.
    #[error("{0:?} is not a gas price with its denomination, such as 0.025stake")]
    Price(String),
    /// Not a factor.
    #[error("{0:?} is not a factor of at least 1 with up to 6 decimals, such as 1.3")]
    Factor(String),
    /// Beyond what fits.
    #[error("the fee for {gas} gas at {price} is too large")]
    Overflow {
        /// Gas limit.
        gas: u64,
        /// Price.
        price: String,
    },
}

/// An integer amount of one denomination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Coin {
    /// Smallest units.
    pub amount: u128,
    /// Denomination.
    pub denom: String,
}

impl FromStr for Coin {
    type Err = MoneyError;
    fn from_str(s: &str) -> Result<Self, MoneyError> {
        let bad = || MoneyError::Coin(s.chars().take(64).collect());
        let (amount, denom) = split(s.trim()).ok_or_else(bad)?;
        Ok(Self {
            amount: amount.parse().map_err(|_| bad())?,
            denom: denom.to_owned(),
        })
    }
}

impl fmt::Display for Coin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.amount, self.denom)
    }
}

impl TryFrom<String> for Coin {
    type Error = MoneyError;
    fn try_from(s: String) -> Result<Self, MoneyError> {
        s.parse()
    }
}

impl From<Coin> for String {
    fn from(c: Coin) -> String {
        c.to_string()
    }
}

/// A price for one gas as the ratio `atto` / 10^18.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GasPrice {
    atto: u128,
    denom: String,
}

impl GasPrice {
    /// ceil(gas × price). A price of 0 gives no coin.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`].
    pub fn fee(&self, gas: u64) -> Result<Option<Coin>, MoneyError> {
        let overflow = || MoneyError::Overflow {
            gas,
            price: self.to_string(),
        };
        // gas × atto may exceed 128 bits for absurd prices only.
        let amount = self
            .atto
            .checked_mul(u128::from(gas))
            .ok_or_else(overflow)?
            .div_ceil(ONE);
        Ok((amount > 0).then(|| Coin {
            amount,
            denom: self.denom.clone(),
        }))
    }

    /// A quarter more, at most `ceiling`; unchanged if that is lower or of another denomination.
    #[must_use]
    pub fn raised(&self, ceiling: &Self) -> Self {
        if ceiling.denom != self.denom || ceiling.atto <= self.atto {
            return self.clone();
        }
        let more = self.atto.saturating_add(self.atto.div_ceil(4).max(1));
        Self {
            atto: more.min(ceiling.atto),
            denom: self.denom.clone(),
        }
    }

    /// A quarter less, at least `floor`; unchanged if that is higher or of another denomination.
    #[must_use]
    pub fn lowered(&self, floor: &Self) -> Self {
        if !floor.is_below(self) {
            return self.clone();
        }
        let less = self.atto.saturating_sub(self.atto.div_ceil(4));
        Self {
            atto: less.max(floor.atto),
            denom: self.denom.clone(),
        }
    }

    /// The lowest price at which `gas` costs `fee` without rounding; none for no gas, or beyond what fits.
    #[must_use]
    pub fn covering(fee: &Coin, gas: u64) -> Option<Self> {
        let gas = u128::from(gas);
        let whole = fee.amount.checked_div(gas)?.checked_mul(ONE)?;
        // Below 2^64 units are left.
        let part = fee.amount.checked_rem(gas)?.checked_mul(ONE)?.div_ceil(gas);
        Some(Self {
            atto: whole.checked_add(part)?,
            denom: fee.denom.clone(),
        })
    }

    /// Whether it is lower than `other`, of the same denomination.
    #[must_use]
    pub fn is_below(&self, other: &Self) -> bool {
        self.denom == other.denom && self.atto < other.atto
    }

    /// Denomination.
    #[must_use]
    pub fn denom(&self) -> &str {
        &self.denom
    }
}

impl FromStr for GasPrice {
    type Err = MoneyError;
    fn from_str(s: &str) -> Result<Self, MoneyError> {
        let bad = || MoneyError::Price(s.chars().take(64).collect());
        let (number, denom) = split(s.trim()).ok_or_else(bad)?;
        Ok(Self {
            atto: decimal(number, PLACES).ok_or_else(bad)?,
            denom: denom.to_owned(),
        })
    }
}

impl fmt::Display for GasPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.atto / ONE, self.atto % ONE);
        if part == 0 {
            return write!(f, "{whole}{}", self.denom);
        }
        let part = format!("{part:018}");
        write!(f, "{whole}.{}{}", part.trim_end_matches('0'), self.denom)
    }
}

impl TryFrom<String> for GasPrice {
    type Error = MoneyError;
    fn try_from(s: String) -> Result<Self, MoneyError> {
        s.parse()
    }
}

impl From<GasPrice> for String {
    fn from(p: GasPrice) -> String {
        p.to_string()
    }
}

/// What simulated gas is multiplied with, in millionths; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment(u64);

impl Adjustment {
    /// ceil(gas × factor), saturating.
    #[must_use]
    pub fn apply(self, gas: u64) -> u64 {
        u64::try_from((u128::from(gas) * u128::from(self.0)).div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

impl Default for Adjustment {
    /// 1.3: what simulation misses (signature bytes, a state that others change meanwhile) fits in.
    fn default() -> Self {
        Self(1_300_000)
    }
}

impl FromStr for Adjustment {
    type Err = MoneyError;
    fn from_str(s: &str) -> Result<Self, MoneyError> {
        let bad = || MoneyError::Factor(s.chars().take(64).collect());
        let millionths = decimal(s.trim(), 6)
            .and_then(|m| u64::try_from(m).ok())
            .ok_or_else(bad)?;
        if (1_000_000..=100_000_000).contains(&millionths) {
            Ok(Self(millionths))
        } else {
            Err(bad())
        }
    }
}

/// Number and denomination: the denomination starts with a letter and has 3 to 128 of `[a-zA-Z0-9/:._-]`.
fn split(s: &str) -> Option<(&str, &str)> {
    let at = s.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, denom) = s.split_at(at);
    let ok = (3..=128).contains(&denom.len())
        && denom
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/:._-".contains(&b));
    (ok && !number.is_empty()).then_some((number, denom))
}

/// A decimal number times 10^places; `None` for signs, exponents, too many decimals.
fn decimal(s: &str, places: u32) -> Option<u128> {
    let (whole, part) = s.split_once('.').unwrap_or((s, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || s.ends_with('.') {
        return None;
    }
    let missing = places.checked_sub(u32::try_from(part.len()).ok()?)?;
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let scale = 10u128.checked_pow(places)?;
    let whole = whole.parse::<u128>().ok()?.checked_mul(scale)?;
    whole.checked_add(part.checked_mul(10u128.checked_pow(missing)?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fee(price: &str, gas: u64) -> String {
        let coin = price.parse::<GasPrice>().unwrap().fee(gas).unwrap();
        coin.map_or_else(|| "none".to_owned(), |c| c.to_string())
    }

    #[test]
    fn a_fee_is_rounded_up() {
        assert_eq!(fee("0.025stake", 200_000), "5000stake");
        assert_eq!(fee("0.025stake", 200_001), "5001stake");
        assert_eq!(fee("0.000000000000000001stake", 1), "1stake");
        assert_eq!(fee("2stake", u64::MAX), "36893488147419103230stake");
        assert_eq!(fee("0stake", 1_000), "none");
    }

    #[test]
    fn a_price_that_covers_a_fee_is_the_lowest_that_does() {
        let covering = |fee: &str, gas| GasPrice::covering(&fee.parse().unwrap(), gas);
        assert_eq!(covering("5000stake", 200_000).unwrap().to_string(), "0.025stake");
        assert_eq!(
            covering("1stake", 3).unwrap().to_string(),
            "0.333333333333333334stake"
        );
        assert_eq!(
            covering("36893488147419103230stake", u64::MAX)
                .unwrap()
                .to_string(),
            "2stake"
        );
        assert_eq!(covering("1stake", 0), None);
        assert_eq!(covering(&format!("{}stake", u128::MAX), 1), None);
    }

    #[test]
    fn a_price_comes_down_by_a_quarter_to_its_floor() {
        let lowered = |price: &str, floor: &str| {
            let price = price.parse::<GasPrice>().unwrap();
            price.lowered(&floor.parse().unwrap()).to_string()
        };
        assert_eq!(lowered("0.04stake", "0.01stake"), "0.03stake");
        assert_eq!(lowered("0.012stake", "0.01stake"), "0.01stake");
        assert_eq!(lowered("0.01stake", "0.02stake"), "0.01stake");
        assert_eq!(lowered("0.04stake", "0.01atom"), "0.04stake");
    }

    #[test]
    fn what_is_no_money_is_refused() {
        for bad in [
            "",
            "stake",
            "1",
            "-1stake",
            "1.stake",
            ".5stake",
            "0.0000000000000000001stake",
            "1 stake",
            "1st",
        ] {
            assert!(bad.parse::<GasPrice>().is_err(), "{bad}");
        }
        for bad in ["", "1.5stake", "stake", "12", "1stake,2stake"] {
            assert!(bad.parse::<Coin>().is_err(), "{bad}");
        }
        for bad in ["", "0.9", "1.1234567", "-2", "1000"] {
            assert!(bad.parse::<Adjustment>().is_err(), "{bad}");
        }
        assert!(
            "99999999999999999999stake"
                .parse::<GasPrice>()
                .unwrap()
                .fee(u64::MAX)
                .is_err()
        );
    }

    #[test]
    fn an_adjustment_rounds_up() {
        assert_eq!("1.3".parse::<Adjustment>().unwrap().apply(101), 132);
        assert_eq!("1".parse::<Adjustment>().unwrap().apply(101), 101);
        assert_eq!("2".parse::<Adjustment>().unwrap().apply(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn at_the_price_that_covers_a_fee_the_gas_costs_it(amount in 0..1_000_000_000_000_000_000u128, gas in 1..u64::MAX) {
            let fee = Coin { amount, denom: "stake".to_owned() };
            let price = GasPrice::covering(&fee, gas).unwrap();
            let costs = price.fee(gas).unwrap().map_or(0, |c| c.amount);
            prop_assert!(costs >= amount);
            if let Some(less) = price.atto.checked_sub(1) {
                prop_assert!(less * u128::from(gas) < amount * ONE);
            }
        }

        #[test]
        fn a_price_round_trips_as_text(atto in 0..10_000_000_000_000_000_000_000u128) {
            let price = GasPrice { atto, denom: "stake".to_owned() };
            prop_assert_eq!(price.to_string().parse::<GasPrice>().unwrap(), price);
        }
    }
}
