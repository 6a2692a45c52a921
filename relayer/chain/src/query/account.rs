//! Accounts, balances, simulation.

use cosmrs::proto::cosmos::auth::v1beta1::{BaseAccount, QueryAccountRequest, QueryAccountResponse};
use cosmrs::proto::cosmos::bank::v1beta1::{QueryBalanceRequest, QueryBalanceResponse};
use cosmrs::proto::cosmos::tx::v1beta1::{SimulateRequest, SimulateResponse};
use cosmrs::proto::cosmos::vesting::v1beta1::{
    ContinuousVestingAccount, DelayedVestingAccount, PeriodicVestingAccount, PermanentLockedAccount,
};
use cosmrs::proto::traits::Message;

use super::{At, Chain, QueryError};
use crate::rpc::RpcError;

const ACCOUNT: &str = "/cosmos.auth.v1beta1.Query/Account";
const BALANCE: &str = "/cosmos.bank.v1beta1.Query/Balance";
pub(super) const SIMULATE: &str = "/cosmos.tx.v1beta1.Service/Simulate";

/// What signing needs of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Any u64.
    pub number: u64,
    /// The next sequence.
    pub sequence: u64,
}

impl Chain {
    /// The account of an address; `None` if the chain does not know it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn account(&self, address: &str) -> Result<At<Option<Account>>, QueryError> {
        let question = QueryAccountRequest {
            address: address.to_owned(),
        };
        let answer: At<QueryAccountResponse> = match self.grpc(ACCOUNT, "the account", &question, 0).await {
            Err(QueryError::NotFound { height, .. }) => {
                return Ok(At { height, value: None });
            }
            other => other?,
        };
        let account = answer.value.account.unwrap_or_default();
        let base =
            base_account(&account.type_url, &account.value).map_err(|reason| QueryError::Malformed {
                path: ACCOUNT,
                reason,
            })?;
        let value = Some(Account {
            number: base.account_number,
            sequence: base.sequence,
        });
        Ok(At {
            height: answer.height,
            value,
        })
    }

    /// How much an address has of a denomination.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn balance(&self, address: &str, denom: &str) -> Result<At<u128>, QueryError> {
        let question = QueryBalanceRequest {
            address: address.to_owned(),
            denom: denom.to_owned(),
        };
        let answer: At<QueryBalanceResponse> = self.grpc(BALANCE, "the address", &question, 0).await?;
        let amount = answer.value.balance.as_ref().map_or("0", |c| c.amount.as_str());
        let amount = amount.parse().map_err(|_| QueryError::Malformed {
            path: BALANCE,
            reason: "amount".to_owned(),
        })?;
        Ok(answer.map(|_| amount))
    }

    /// The gas that a transaction would use now; an endpoint that simulates nothing is passed over.
    ///
    /// # Errors
    /// [`QueryError::Contract`], [`QueryError::Refused`] with the verdict of what would go wrong;
    /// [`QueryError::NoSimulation`] if no endpoint that answers simulates.
    pub async fn simulate(&self, tx: Vec<u8>) -> Result<u64, QueryError> {
        let question = SimulateRequest {
            tx_bytes: tx,
            ..SimulateRequest::default()
        };
        let answer: At<SimulateResponse> = match self
            .grpc(
                SIMULATE,
                "what the transaction names (its contract or account)",
                &question,
                0,
            )
            .await
        {
            Err(QueryError::Rpc(RpcError::NoService { .. })) => return Err(QueryError::NoSimulation),
            other => other?,
        };
        let info = answer.value.gas_info;
        let missing = || QueryError::Malformed {
            path: SIMULATE,
            reason: "no gas_info".to_owned(),
        };
        info.map(|g| g.gas_used).ok_or_else(missing)
    }
}

/// Ordinary and vesting accounts; others cannot sign here.
fn base_account(type_url: &str, value: &[u8]) -> Result<BaseAccount, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{type_url}: {e}");
    let vesting = match type_url.rsplit('.').next().unwrap_or_default() {
        "BaseAccount" => return BaseAccount::decode(value).map_err(|e| wrong(&e)),
        "ContinuousVestingAccount" => {
            ContinuousVestingAccount::decode(value)
                .map_err(|e| wrong(&e))?
                .base_vesting_account
        }
        "DelayedVestingAccount" => {
            DelayedVestingAccount::decode(value)
                .map_err(|e| wrong(&e))?
                .base_vesting_account
        }
        "PeriodicVestingAccount" => {
            PeriodicVestingAccount::decode(value)
                .map_err(|e| wrong(&e))?
                .base_vesting_account
        }
        "PermanentLockedAccount" => {
            PermanentLockedAccount::decode(value)
                .map_err(|e| wrong(&e))?
                .base_vesting_account
        }
        _ => {
            return Err(wrong(
                &"an account of this type cannot sign here; use an ordinary one",
            ));
        }
    };
    vesting
        .and_then(|v| v.base_account)
        .ok_or_else(|| wrong(&"no base account in it"))
}
