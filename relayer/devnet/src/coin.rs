//! Amounts of denominations and gas prices, in integers only.

use std::fmt;

use cosmrs::proto::cosmos::base::v1beta1::Coin as ProtoCoin;

use crate::tx::TxError;

/// A set of coins: sorted by denomination, without duplicates or zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coins(Vec<(String, u128)>);

impl Coins {
    /// Checks coins as they stand in a message: valid denominations, positive amounts, sorted, no duplicates.
    pub(crate) fn from_proto(coins: &[ProtoCoin]) -> Result<Self, TxError> {
        let mut checked: Vec<(String, u128)> = Vec::with_capacity(coins.len());
        for coin in coins {
            let invalid = |why: &str| TxError::invalid_coins(format!("{}{}: {why}", coin.amount, coin.denom));
            if !valid_denom(&coin.denom) {
                return Err(invalid("invalid denomination"));
            }
            let amount: u128 = coin.amount.parse().map_err(|_| invalid("invalid amount"))?;
            if amount == 0 {
                return Err(invalid("the amount must be positive"));
            }
            if checked.last().is_some_and(|(denom, _)| *denom >= coin.denom) {
                return Err(invalid("denominations must be sorted and unique"));
            }
            checked.push((coin.denom.clone(), amount));
        }
        Ok(Self(checked))
    }

    /// Parses `1000stake` or `1000stake,5token`; the empty string is no coins.
    ///
    /// # Errors
    /// A text that names the part that does not parse.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut coins = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (amount, denom) = part.split_at(digits);
            let amount: u128 = amount
                .parse()
                .map_err(|_| format!("`{part}`: expected an amount and a denomination, like 1000stake"))?;
            if !valid_denom(denom) {
                return Err(format!(
                    "`{part}`: `{denom}` is no valid denomination, expected one like stake"
                ));
            }
            if amount > 0 {
                coins.push((denom.to_string(), amount));
            }
        }
        coins.sort();
        if coins
            .windows(2)
            .any(|pair| matches!(pair, [(a, _), (b, _)] if a == b))
        {
            return Err(format!("`{text}` names a denomination twice"));
        }
        Ok(Self(coins))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u128)> {
        self.0.iter().map(|(denom, amount)| (denom.as_str(), *amount))
    }

    /// The amount of `denom`, 0 if absent.
    pub(crate) fn amount_of(&self, denom: &str) -> u128 {
        self.iter()
            .find(|(d, _)| *d == denom)
            .map_or(0, |(_, amount)| amount)
    }
}

impl fmt::Display for Coins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (denom, amount)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{amount}{denom}")?;
        }
        Ok(())
    }
}

/// `[a-zA-Z][a-zA-Z0-9/:._-]{2,127}`, the SDK's rule.
pub(crate) fn valid_denom(denom: &str) -> bool {
    let mut bytes = denom.bytes();
    (3..=128).contains(&denom.len())
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"/:._-".contains(&b))
}

/// The lowest price of a unit of gas that CheckTx accepts, as a decimal with up to 18 places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GasPrice {
    /// Price × 10^18.
    atto: u128,
    denom: String,
}

/// 10^18: the scale of [`GasPrice`].
const ATTO: u128 = 1_000_000_000_000_000_000;

impl GasPrice {
    /// Transactions without a fee are accepted.
    pub fn free() -> Self {
        Self {
            atto: 0,
            denom: "stake".to_string(),
        }
    }

    /// Parses `0.025stake` or `0stake`.
    ///
    /// # Errors
    /// A text that says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}`: expected a gas price like 0.025stake with at most 18 decimal places");
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, denom) = text.split_at(split);
        if !valid_denom(denom) {
            return Err(expected());
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.len() > 18 {
            return Err(expected());
        }
        let whole: u128 = whole.parse().map_err(|_| expected())?;
        let fraction: u128 = format!("{fraction:0<18}").parse().map_err(|_| expected())?;
        let atto = whole
            .checked_mul(ATTO)
            .and_then(|w| w.checked_add(fraction))
            .ok_or_else(expected)?;
        Ok(Self {
            atto,
            denom: denom.to_string(),
        })
    }

    /// The fee for `gas`, rounded up; `None` if nothing is asked for.
    pub(crate) fn required(&self, gas: u64) -> Option<Coins> {
        let amount = self.atto.saturating_mul(u128::from(gas)).div_ceil(ATTO);
        (amount > 0).then(|| Coins(vec![(self.denom.clone(), amount)]))
    }
}

impl std::str::FromStr for GasPrice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fee_is_rounded_up() {
        let price = GasPrice::parse("0.025stake").unwrap();
        assert_eq!(price.required(200_000).unwrap().to_string(), "5000stake");
        assert_eq!(price.required(200_001).unwrap().to_string(), "5001stake");
        assert_eq!(GasPrice::parse("0stake").unwrap().required(u64::MAX), None);
        assert!(GasPrice::parse("0.025").is_err());
        assert!(GasPrice::parse("stake").is_err());
    }

    #[test]
    fn coins_are_parsed_sorted_and_without_duplicates() {
        assert_eq!(
            Coins::parse("5token,1000stake").unwrap().to_string(),
            "1000stake,5token"
        );
        assert_eq!(Coins::parse("").unwrap().to_string(), "");
        assert!(Coins::parse("1stake,2stake").is_err());
        assert!(Coins::parse("stake").is_err());
        assert!(Coins::parse("12").is_err());
    }
}
