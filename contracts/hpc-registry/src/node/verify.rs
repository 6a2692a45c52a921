//! The provider's word for a node's identity: ADR-036 over canonical JSON.

use cosmwasm_std::{Addr, Api, CanonicalAddr, Env, Storage};
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::registration::{
    NodeIdentity, REGISTRATION_WINDOW_SECONDS, account_of, adr036_sign_bytes, canonical_registration,
};
use sha2::{Digest, Sha256};

use crate::cluster::ClusterInfo;
use crate::config::query::now;
use crate::error::{ContractError, refuse};
use crate::keys;

/// Checks time, owner and signature; answers with who signed.
pub(crate) fn provider_signature(
    api: &dyn Api,
    env: &Env,
    cluster: &ClusterInfo,
    identity: &NodeIdentity,
    signature: &str,
    public_key: &str,
) -> Result<Addr, ContractError> {
    if identity.provider_address != cluster.owner.as_str() {
        return refuse(
            Code::InvalidField,
            format!(
                "node_identity.provider_address must be the cluster's owner, {}",
                cluster.owner
            ),
        );
    }
    let (signed, now) = (identity.registration_timestamp.seconds(), now(env));
    if now.since(signed) > REGISTRATION_WINDOW_SECONDS || signed.since(now) > REGISTRATION_WINDOW_SECONDS {
        return refuse(
            Code::RegistrationExpired,
            format!("node_identity.registration_timestamp {signed} is more than 24 h from block time {now}"),
        );
    }
    let Some(public_key) = base64_exact::<33>(public_key) else {
        return refuse(
            Code::InvalidField,
            "provider_pubkey must be base64 of a compressed key of 33 bytes",
        );
    };
    let Some(signature) = base64_exact::<64>(signature) else {
        return refuse(
            Code::InvalidField,
            "provider_signature must be base64 of 64 bytes",
        );
    };
    let signer = api.addr_humanize(&CanonicalAddr::from(account_of(&public_key)))?;
    if !cluster.is_staff(&signer) {
        return refuse(
            Code::NotAuthorized,
            format!(
                "provider_pubkey belongs to {signer}, who is neither the cluster's owner nor an operator"
            ),
        );
    }
    let canonical = canonical_registration(&env.block.chain_id, env.contract.address.as_str(), identity)?;
    let digest = Sha256::digest(adr036_sign_bytes(signer.as_str(), canonical.as_bytes()));
    if !api
        .secp256k1_verify(&digest, &signature, &public_key)
        .unwrap_or(false)
    {
        return refuse(
            Code::SignatureInvalid,
            "provider_signature does not verify over the canonical identity (ADR-036)",
        );
    }
    Ok(signer)
}

/// Refuses a nonce that was used in this cluster; the signature binds the cluster.
pub(crate) fn check_nonce(
    storage: &dyn Storage,
    cluster: u32,
    identity: &NodeIdentity,
) -> Result<(), ContractError> {
    if storage.get(&keys::nonce(cluster, &identity.nonce()?)).is_some() {
        return refuse(
            Code::RegistrationNonceUsed,
            "node_identity.registration_nonce was used before",
        );
    }
    Ok(())
}

/// Burns the nonce until a registration with this timestamp can no longer be sent.
pub(crate) fn burn_nonce(
    storage: &mut dyn Storage,
    cluster: u32,
    identity: &NodeIdentity,
) -> Result<(), ContractError> {
    let expiry = identity
        .registration_timestamp
        .seconds()
        .plus(REGISTRATION_WINDOW_SECONDS)
        .0;
    let expiry = u32::try_from(expiry).unwrap_or(u32::MAX);
    storage.set(&keys::nonce(cluster, &identity.nonce()?), &expiry.to_be_bytes());
    Ok(())
}
