//! Gas estimates.

use cosmrs::proto::cosmos::base::abci::v1beta1::{GasInfo, Result as SimulationResult, TxMsgData};
use cosmrs::proto::cosmos::tx::v1beta1::{SimulateRequest, SimulateResponse};
use cosmrs::proto::tendermint::abci::{Event, EventAttribute};
use cosmrs::proto::traits::Message;

use super::{Status, grpc};
use crate::chain::{Node, Snapshot};
use crate::kv::Layer;
use crate::tx::{self, TxError};

pub(super) fn simulate(
    node: &Node,
    snapshot: &Snapshot,
    request: &SimulateRequest,
) -> Result<Vec<u8>, TxError> {
    if request.tx_bytes.is_empty() {
        return Err(grpc(Status::InvalidArgument, "empty txBytes is not allowed"));
    }
    let mut layer = Layer::over(&snapshot.state);
    let tip = &snapshot.tip;
    let context = node.params.context(tip.height, tip.time_nanos, tip.app_hash());
    let result = tx::simulate(&context, &node.params.rules, &mut layer, &request.tx_bytes)
        .map_err(|error| TxError::unknown_request(error.log))?;
    let events = result
        .events
        .into_iter()
        .map(|event| Event {
            r#type: event.kind,
            attributes: event
                .attributes
                .into_iter()
                .map(|a| EventAttribute {
                    key: a.key,
                    value: a.value,
                    index: true,
                })
                .collect(),
        })
        .collect();
    let responses = TxMsgData::decode(result.data.as_slice())
        .map(|data| data.msg_responses)
        .unwrap_or_default();
    #[allow(
        deprecated,
        reason = "the generated type requires the old field; clients read either"
    )]
    let response = SimulateResponse {
        gas_info: Some(GasInfo {
            gas_wanted: result.gas_wanted,
            gas_used: result.gas_used,
        }),
        result: Some(SimulationResult {
            data: result.data,
            log: String::new(),
            events,
            msg_responses: responses,
        }),
    };
    Ok(response.encode_to_vec())
}
