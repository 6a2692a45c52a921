//! Join tokens: one token, several nodes.

use hpc_schema::code::Code;
use hpc_schema::gateway::RegisterRequest;
use hpc_schema::refusal::Refusal;
use hpc_schema::token::JoinClaims;

use super::super::Gateway;
use super::super::answer::Failure;
use crate::enrol::{self, Joined};
use crate::identity::Claims;

/// What a join token is for the node that uses it.
pub(super) fn use_claims(request: &RegisterRequest, join: &JoinClaims) -> Result<Claims, Failure> {
    let node = request
        .node_id
        .clone()
        .ok_or_else(|| Failure::malformed("node_id", "is needed with a join token"))?;
    let pubkey = request.public_key;
    Ok(Claims {
        iss: join.iss.clone(),
        jti: enrol::use_id(&join.jti, node.as_str(), pubkey.as_bytes()),
        sub: node,
        cluster_id: join.cluster_id.clone(),
        provider_address: join.provider_address.clone(),
        pubkey,
        iat: join.iat.0,
        exp: join.exp.0,
        ca_sha256: join.ca_sha256.clone(),
        chain_id: join.chain_id.clone(),
        contract: join.contract.clone(),
        task_key: join.task_key,
        endpoint: join.endpoint.clone(),
    })
}

/// Whoever has a join token may add nodes, not take over one that is on record: that needs a token for its name.
pub(super) fn not_another(gateway: &Gateway, claims: &Claims) -> Result<(), Failure> {
    let unread = gateway.registry.is_unread(&claims.cluster_id);
    let node = gateway.registry.node(&claims.cluster_id, &claims.sub);
    if node.is_none() && unread {
        return Err(Failure::unread());
    }
    if node.is_none_or(|n| *n.key() == claims.pubkey) {
        return Ok(());
    }
    let what =
        "another key is registered under this id; a join token does not replace it, a node's token does";
    Err(Failure::new(
        403,
        Refusal::field(Code::NodeExists, "node_id", what),
    ))
}

pub(super) fn use_of(joined: Joined) -> Result<bool, Failure> {
    match joined {
        Joined::Yes { held } => Ok(held),
        Joined::Unknown => Err(Failure::forbidden(
            Code::TokenInvalid,
            "the token is not on record",
        )),
        Joined::Revoked => Err(Failure::forbidden(
            Code::TokenInvalid,
            "the token has been revoked",
        )),
        Joined::Expired => Err(Failure::forbidden(Code::TokenExpired, "the token has expired")),
        Joined::NoUsesLeft => Err(Failure::forbidden(
            Code::TokenUsed,
            "as many nodes as the token allows have used it",
        )),
        Joined::OutOfRange => Err(Failure::forbidden(
            Code::NotAuthorized,
            "the token does not serve this address",
        )),
    }
}
