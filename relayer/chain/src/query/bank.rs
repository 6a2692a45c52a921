//! All that an account holds.

use cosmrs::proto::cosmos::bank::v1beta1::{QueryAllBalancesRequest, QueryAllBalancesResponse};
use cosmrs::proto::cosmos::base::query::v1beta1::PageRequest;

use super::{At, Chain, QueryError};
use crate::gas::Coin;

const ALL_BALANCES: &str = "/cosmos.bank.v1beta1.Query/AllBalances";
/// Coins asked for at once.
const PAGE: u64 = 100;
/// Most pages: nobody reads more than ten thousand denominations, and a broken node must not hold us for ever.
const MAX_PAGES: usize = 100;

impl Chain {
    /// Everything that an address has, in order of denominations. The height is that of the last page.
    ///
    /// # Errors
    /// [`QueryError`]; [`QueryError::Malformed`] if the pages never end.
    pub async fn balances(&self, address: &str) -> Result<At<Vec<Coin>>, QueryError> {
        let malformed = |reason: String| QueryError::Malformed {
            path: ALL_BALANCES,
            reason,
        };
        let mut coins = Vec::new();
        let mut key = Vec::new();
        for _ in 0..MAX_PAGES {
            let question = QueryAllBalancesRequest {
                address: address.to_owned(),
                pagination: Some(PageRequest {
                    key: std::mem::take(&mut key),
                    limit: PAGE,
                    ..PageRequest::default()
                }),
                resolve_denom: false,
            };
            let answer: At<QueryAllBalancesResponse> =
                self.grpc(ALL_BALANCES, "the address", &question, 0).await?;
            for coin in answer.value.balances {
                let amount = coin
                    .amount
                    .parse()
                    .map_err(|_| malformed(format!("amount of {}", coin.denom)))?;
                coins.push(Coin {
                    amount,
                    denom: coin.denom,
                });
            }
            key = answer.value.pagination.map(|p| p.next_key).unwrap_or_default();
            if key.is_empty() {
                return Ok(At {
                    height: answer.height,
                    value: coins,
                });
            }
        }
        Err(malformed(format!("more than {MAX_PAGES} pages")))
    }
}
