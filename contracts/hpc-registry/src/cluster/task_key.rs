use cosmwasm_std::{DepsMut, Env, MessageInfo, Response};
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;
use hpc_schema::registration::task_key_rotation_message;

use super::ClusterInfo;
use crate::emit;
use crate::error::{ContractError, refuse};

/// Sets the first task key; afterwards only the present key can name its successor.
pub(crate) fn set(
    deps: DepsMut<'_>,
    env: &Env,
    info: &MessageInfo,
    cluster_id: ClusterId,
    key: AgentKey,
    rotation_signature: Option<&str>,
) -> Result<Response, ContractError> {
    let mut cluster = ClusterInfo::load(deps.storage, &cluster_id)?;
    if let Some(old) = cluster.task_public_key {
        let message = task_key_rotation_message(
            &env.block.chain_id,
            env.contract.address.as_str(),
            &cluster_id,
            &key,
        );
        let signature = rotation_signature.and_then(base64_exact::<64>);
        let good = signature.is_some_and(|s| {
            deps.api
                .ed25519_verify(&message, &s, old.as_bytes())
                .unwrap_or(false)
        });
        if !good {
            return refuse(
                Code::SignatureInvalid,
                "rotation_signature must be the present task key's signature over the rotation message",
            );
        }
    }
    cluster.task_public_key = Some(key);
    cluster.save(deps.storage, &cluster_id)?;
    emit::cluster(cluster_id, "task_key_set", &info.sender, &cluster.task_public_key)
}
