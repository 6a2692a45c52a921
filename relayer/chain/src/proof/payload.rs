//! The agent's part: its signatures, and that the report is in the transaction's message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::cosmos::tx::v1beta1::{TxBody, TxRaw};
use cosmrs::proto::cosmwasm::wasm::v1::MsgExecuteContract;
use cosmrs::proto::traits::Message as _;
use hpc_schema::heartbeat::{Admission, HeartbeatRequest, Registered, VerifiedHeartbeat, verify_heartbeat};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::report::{Tag, batch};
use hpc_schema::time::UnixSeconds;
use serde_json::value::RawValue;

use super::{Proof, ProofError};

const EXECUTE: &str = "/cosmwasm.wasm.v1.MsgExecuteContract";

/// The agent's key signed this payload, and a report that says the same, for this registration.
pub(super) fn signed(proof: &Proof) -> Result<VerifiedHeartbeat, ProofError> {
    let heartbeat = RawValue::from_string(proof.heartbeat.clone())
        .map_err(|e| ProofError::Part("heartbeat", format!("is no JSON: {e}")))?;
    let request = HeartbeatRequest {
        heartbeat: heartbeat.into(),
        auth: proof.auth.clone(),
        acknowledgements: Vec::new(),
    };
    let time = proof
        .auth
        .timestamp
        .and_then(|t| u64::try_from(t).ok())
        .ok_or_else(|| ProofError::Part("auth.timestamp", "is absent".into()))?;
    let agent = &proof.agent;
    let tag = Tag::derive(
        &proof.chain_id,
        &proof.contract,
        &agent.cluster_id,
        &agent.node_id,
        agent.epoch,
    );
    let against = Admission {
        path_node_id: agent.node_id.as_str(),
        certificate_node_id: &agent.node_id,
        certificate_cluster_id: &agent.cluster_id,
        registered: Some(Registered {
            key: &agent.public_key,
            tag: &tag,
            job_ids: agent.job_ids,
        }),
        // When it was made, it was not too old: its age proves nothing.
        now: UnixSeconds(time),
    };
    verify_heartbeat(&request, &against, &ZebraVerifier).map_err(ProofError::Agent)
}

/// The transaction carries this report for this cluster to this contract.
pub(super) fn carried(proof: &Proof, tx: &[u8], verified: &VerifiedHeartbeat) -> Result<(), ProofError> {
    let bad = |what: &str| ProofError::Part("tx", what.to_owned());
    let raw = TxRaw::decode(tx).map_err(|_| bad("is no transaction"))?;
    let body = TxBody::decode(raw.body_bytes.as_slice()).map_err(|_| bad("is no transaction"))?;
    for any in body.messages.iter().filter(|any| any.type_url == EXECUTE) {
        let Ok(message) = MsgExecuteContract::decode(any.value.as_slice()) else {
            continue;
        };
        let Ok(ExecuteMsg::SubmitReports { groups }) = serde_json::from_slice(&message.msg) else {
            continue;
        };
        if message.contract != proof.contract {
            continue;
        }
        for group in groups.iter().filter(|g| g.cluster_id == proof.agent.cluster_id) {
            let Ok(bytes) = STANDARD.decode(&group.reports) else {
                continue;
            };
            let Ok(items) = batch::decode(&bytes) else {
                continue;
            };
            let report = &verified.report;
            // The signature covers all of the report, under a tag that names the node.
            let found = items.flatten().any(|item| {
                *item.signature == verified.report_signature
                    && item.sequence == report.sequence
                    && item.time == report.time
                    && *item.payload_hash == verified.payload_hash
            });
            if found {
                return Ok(());
            }
        }
    }
    Err(bad("carries no such report for this cluster to this contract"))
}
