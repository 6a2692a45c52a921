//! How a transaction of the operator key is paid for.

use hpc_chain::code::Verdict;
use hpc_chain::gas::GasPrice;
use hpc_chain::query::QueryError;
use hpc_chain::send::{Pay, SendError};

/// At this price, by the granter's account where there is one.
pub(super) fn pay(price: GasPrice, granter: Option<&String>) -> Pay {
    match granter.cloned() {
        Some(granter) => Pay::Granted { price, granter },
        None => Pay::Price(price),
    }
}

/// How else, once it was refused for that: a quarter more where a node asks for more and the ceiling allows it, by the key
/// itself where it was granted no fees. None: it does not help.
pub(super) fn otherwise(pay: &Pay, refused: &SendError, ceiling: Option<&GasPrice>) -> Option<Pay> {
    let (SendError::Refused { verdict, .. } | SendError::Query(QueryError::Refused { verdict, .. })) =
        refused
    else {
        return None;
    };
    match (verdict, pay) {
        (Verdict::FeeGrant, Pay::Granted { price, granter }) => {
            tracing::info!(
                granter,
                "chain.fee_granter has granted the operator key no fees; it pays itself"
            );
            Some(Pay::Price(price.clone()))
        }
        (Verdict::InsufficientFee, Pay::Price(price)) => raised(price, ceiling).map(Pay::Price),
        (Verdict::InsufficientFee, Pay::Granted { price, granter }) => {
            raised(price, ceiling).map(|price| Pay::Granted {
                price,
                granter: granter.clone(),
            })
        }
        _ => None,
    }
}

fn raised(price: &GasPrice, ceiling: Option<&GasPrice>) -> Option<GasPrice> {
    let raised = price.raised(ceiling?);
    (raised != *price).then_some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verdict: Verdict) -> SendError {
        SendError::Refused {
            verdict,
            abci_code: 13,
            codespace: "sdk".into(),
            log: "insufficient fees".into(),
            remedy: "",
        }
    }

    fn price(text: &str) -> GasPrice {
        text.parse().unwrap()
    }

    #[test]
    fn the_price_of_a_drain_rises_up_to_the_ceiling_and_not_without_one() {
        let (fee, ceiling) = (refused(Verdict::InsufficientFee), price("0.03stake"));
        let granter = "wasm1granter".to_owned();
        for granter in [None, Some(&granter)] {
            let mut paid = pay(price("0.02stake"), granter);
            for expected in ["0.025stake", "0.03stake"] {
                paid = otherwise(&paid, &fee, Some(&ceiling)).unwrap();
                assert_eq!(paid, pay(price(expected), granter));
            }
            assert_eq!(otherwise(&paid, &fee, Some(&ceiling)), None, "it is the ceiling");
            assert_eq!(otherwise(&paid, &fee, None), None);
        }
    }

    #[test]
    fn a_key_that_was_granted_no_fees_pays_itself_and_is_tried_so_once() {
        let granter = "wasm1granter".to_owned();
        let (granted, own) = (
            pay(price("0.02stake"), Some(&granter)),
            pay(price("0.02stake"), None),
        );
        let no_grant = refused(Verdict::FeeGrant);
        assert_eq!(otherwise(&granted, &no_grant, None), Some(own.clone()));
        assert_eq!(otherwise(&own, &no_grant, None), None);
        assert_eq!(
            otherwise(&granted, &refused(Verdict::InsufficientFunds), None),
            None
        );
    }
}
