//! Consensus parameters.

use cosmrs::proto::tendermint::v0_38::types::{
    BlockParams, ConsensusParams, EvidenceParams, ValidatorParams,
};
use cosmrs::proto::traits::Message;

use crate::chain::Node;

/// `cosmos.consensus.v1.QueryParamsResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct QueryParamsResponse {
    #[prost(message, optional, tag = "1")]
    params: Option<ConsensusParams>,
}

/// Bytes and gas of a block, the rest as CometBFT's defaults.
pub(super) fn params(node: &Node) -> Vec<u8> {
    let params = ConsensusParams {
        block: Some(BlockParams {
            max_bytes: i64::try_from(node.params.block_bytes).unwrap_or(i64::MAX),
            max_gas: node
                .params
                .rules
                .max_block_gas
                .map_or(-1, |gas| i64::try_from(gas).unwrap_or(i64::MAX)),
        }),
        evidence: Some(EvidenceParams::default()),
        validator: Some(ValidatorParams {
            pub_key_types: vec!["ed25519".to_string()],
        }),
        version: None,
        abci: None,
    };
    QueryParamsResponse { params: Some(params) }.encode_to_vec()
}
