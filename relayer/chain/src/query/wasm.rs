//! Contracts.

use cosmrs::proto::cosmwasm::wasm::v1::{
    QueryCodesRequest, QueryCodesResponse, QueryContractInfoRequest, QueryContractInfoResponse,
    QueryRawContractStateRequest, QueryRawContractStateResponse, QuerySmartContractStateRequest,
    QuerySmartContractStateResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{At, Chain, QueryError};

const SMART: &str = "/cosmwasm.wasm.v1.Query/SmartContractState";
const RAW: &str = "/cosmwasm.wasm.v1.Query/RawContractState";
const INFO: &str = "/cosmwasm.wasm.v1.Query/ContractInfo";
const CODES: &str = "/cosmwasm.wasm.v1.Query/Codes";

/// What the chain knows of a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractInfo {
    /// Code id it runs.
    pub code_id: u64,
    /// Who instantiated it.
    pub creator: String,
    /// Who may migrate it; empty for nobody.
    pub admin: String,
    /// For people.
    pub label: String,
}

/// A stored code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeInfo {
    /// Its id.
    pub code_id: u64,
    /// Who stored it.
    pub creator: String,
    /// Lower-case hex SHA-256 of the wasm.
    pub checksum: String,
}

impl Chain {
    /// Asks a contract.
    ///
    /// # Errors
    /// [`QueryError::Contract`] with the registry's code, [`QueryError::NotFound`] if there is no such contract.
    pub async fn smart<Q: Serialize, A: DeserializeOwned>(
        &self,
        contract: &str,
        question: &Q,
    ) -> Result<At<A>, QueryError> {
        let malformed = |e: serde_json::Error| QueryError::Malformed {
            path: SMART,
            reason: e.to_string(),
        };
        let question = QuerySmartContractStateRequest {
            address: contract.to_owned(),
            query_data: serde_json::to_vec(question).map_err(malformed)?,
        };
        let answer: At<QuerySmartContractStateResponse> =
            self.grpc(SMART, "the contract", &question, 0).await?;
        let value = serde_json::from_slice(&answer.value.data).map_err(malformed)?;
        Ok(At {
            height: answer.height,
            value,
        })
    }

    /// Reads a raw storage key of a contract; `None` if there is nothing under it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn raw(&self, contract: &str, key: &[u8]) -> Result<At<Option<Vec<u8>>>, QueryError> {
        let question = QueryRawContractStateRequest {
            address: contract.to_owned(),
            query_data: key.to_vec(),
        };
        let answer: At<QueryRawContractStateResponse> = self.grpc(RAW, "the contract", &question, 0).await?;
        Ok(answer.map(|a| (!a.data.is_empty()).then_some(a.data)))
    }

    /// What the chain knows of a contract.
    ///
    /// # Errors
    /// [`QueryError::NotFound`] if there is none at this address.
    pub async fn contract_info(&self, contract: &str) -> Result<At<ContractInfo>, QueryError> {
        let question = QueryContractInfoRequest {
            address: contract.to_owned(),
        };
        let answer: At<QueryContractInfoResponse> = self.grpc(INFO, "the contract", &question, 0).await?;
        let Some(info) = answer.value.contract_info else {
            return Err(QueryError::NotFound {
                what: "the contract",
                height: answer.height,
                log: contract.to_owned(),
            });
        };
        let value = ContractInfo {
            code_id: info.code_id,
            creator: info.creator,
            admin: info.admin,
            label: info.label,
        };
        Ok(At {
            height: answer.height,
            value,
        })
    }

    /// The first page of stored codes, as many as the chain gives at once.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn codes(&self) -> Result<At<Vec<CodeInfo>>, QueryError> {
        let question = QueryCodesRequest::default();
        let answer: At<QueryCodesResponse> = self.grpc(CODES, "the codes", &question, 0).await?;
        Ok(answer.map(|a| {
            let code = |c: cosmrs::proto::cosmwasm::wasm::v1::CodeInfoResponse| CodeInfo {
                code_id: c.code_id,
                creator: c.creator,
                checksum: hex::encode(c.data_hash),
            };
            a.code_infos.into_iter().map(code).collect()
        }))
    }
}
