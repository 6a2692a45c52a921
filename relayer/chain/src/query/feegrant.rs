use cosmrs::proto::cosmos::feegrant::v1beta1::{QueryAllowanceRequest, QueryAllowanceResponse};

use super::{Chain, QueryError};

/// Whether somebody pays another account's fees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeeGrant {
    /// There is a grant. What is left of it the chain knows when it is used.
    Granted,
    /// There is none.
    Missing,
    /// The chain has no fee grants at all.
    NoModule,
}

/// The SDK's code for a request that it does not know.
const UNKNOWN_REQUEST: u32 = 6;

impl Chain {
    /// Whether `granter` pays the fees of `grantee` (x/feegrant).
    ///
    /// # Errors
    /// [`QueryError`], if the chain could not be asked.
    pub async fn fee_grant(&self, granter: &str, grantee: &str) -> Result<FeeGrant, QueryError> {
        let question = QueryAllowanceRequest {
            granter: granter.to_owned(),
            grantee: grantee.to_owned(),
        };
        let path = "/cosmos.feegrant.v1beta1.Query/Allowance";
        let answer = self
            .grpc::<_, QueryAllowanceResponse>(path, "fee grant", &question, 0)
            .await;
        match answer {
            Ok(_) => Ok(FeeGrant::Granted),
            Err(QueryError::Refused { code, .. }) if code == UNKNOWN_REQUEST => Ok(FeeGrant::NoModule),
            // The module has one answer for a grant that is not there and for addresses that are none.
            Err(QueryError::NotFound { .. } | QueryError::Refused { .. }) => Ok(FeeGrant::Missing),
            Err(e) => Err(e),
        }
    }
}
