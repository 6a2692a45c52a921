//! Join tokens: one token, several nodes.

use std::net::IpAddr;

use hpc_schema::code::Code;
use hpc_schema::gateway::RegisterRequest;
use hpc_schema::refusal::Refusal;
use hpc_schema::token::JoinClaims;

use super::super::Gateway;
use super::super::answer::Failure;
use crate::enrol::{self, Joined, REJECTED};
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

/// Whether the node waits for approval, or why it may not use the token. `from`: where it asks from.
pub(super) fn use_of(joined: Joined, from: IpAddr) -> Result<bool, Failure> {
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
        Joined::Rejected => Err(rejected()),
        Joined::OutOfRange => {
            let what = format!("the token does not serve {from}, where this request comes from");
            let remedy = "register from a network that it serves, or create one for this: virtengine-provider \
                          node-token join --range";
            Err(Failure::new(
                403,
                Refusal::advised(Code::NotAuthorized, what, remedy),
            ))
        }
    }
}

/// 403: the operator has refused this key, which another join token would not change.
pub(super) fn rejected() -> Failure {
    let remedy = "create a token for this node and key: virtengine-provider node-token create";
    Failure::new(403, Refusal::advised(Code::TokenInvalid, REJECTED, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_that_does_not_count_is_refused_with_its_code_and_what_to_do() {
        let from = IpAddr::from([192, 0, 2, 7]);
        let either = "node-token create, or node-token join for a join token";
        for (joined, code, what, remedy) in [
            (Joined::Unknown, Code::TokenInvalid, "is not on record", either),
            (Joined::Revoked, Code::TokenInvalid, "has been revoked", either),
            (Joined::Expired, Code::TokenExpired, "has expired", either),
            (Joined::NoUsesLeft, Code::TokenUsed, "as many nodes", either),
            // Another join token does not help this one,
            (
                Joined::Rejected,
                Code::TokenInvalid,
                "the operator has refused this key for this node; ",
                "this node and key: virtengine-provider node-token create",
            ),
            // nor this one whoever owns the cluster.
            (
                Joined::OutOfRange,
                Code::NotAuthorized,
                "does not serve 192.0.2.7",
                "virtengine-provider node-token join --range",
            ),
        ] {
            let failure = use_of(joined, from).unwrap_err();
            let refusal = failure.refusal;
            assert_eq!((failure.status, refusal.code), (403, code), "{joined:?}");
            assert!(
                refusal.message.contains(what) && refusal.message.ends_with(remedy),
                "{refusal}"
            );
        }
        for held in [false, true] {
            assert_eq!(use_of(Joined::Yes { held }, from).unwrap(), held);
        }
    }
}
