//! What a request for registration says, checked before the store is asked.

use std::fmt::Display;

use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{RegisterRequest, attestation_data, is_probe_address, register_message};
use hpc_schema::heartbeat::Label;
use hpc_schema::key::{Verifier as _, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::registration::key_rotation_message;
use hpc_schema::time::UnixSeconds;

use super::super::Gateway;
use super::super::answer::Failure;
use super::join::use_claims;
use crate::attest::{self, BadQuote, Quoted};
use crate::identity::{Claims, NodeCsr, Token, TokenError};

/// A request whose signatures are in order.
pub(super) struct Checked {
    pub(super) claims: Claims,
    pub(super) csr: NodeCsr,
    /// Id of the join token, if it is one; then the claims are those of this node's use of it.
    pub(super) join: Option<String>,
    /// What the node's TPM says.
    pub(super) quoted: Option<Quoted>,
}

/// Everything that can be said without the store.
pub(super) fn check(
    gateway: &Gateway,
    request: &RegisterRequest,
    now: UnixSeconds,
) -> Result<Checked, Failure> {
    let registry = &gateway.registry;
    let token = gateway
        .tokens
        .read_any(&request.token, registry.chain_id(), registry.contract())
        .map_err(|e: TokenError| Failure::forbidden(Code::TokenInvalid, e))?;
    let (claims, join) = match token {
        Token::Node(claims) => {
            same_node(request, &claims)?;
            (*claims, None)
        }
        Token::Join(join) => (use_claims(request, &join)?, Some(join.jti)),
    };
    claims
        .check_time(now)
        .map_err(|e| Failure::forbidden(Code::TokenExpired, e))?;
    if request.public_key != claims.pubkey {
        let refusal = Refusal::field(
            Code::KeyMismatch,
            "public_key",
            "is not the key that the token was made for",
        );
        return Err(Failure::new(403, refusal));
    }
    let csr = NodeCsr::from_pem(&request.csr).map_err(|e| Failure::malformed("csr", e))?;
    let signature: [u8; 64] = base64_exact(&request.csr_signature)
        .ok_or_else(|| Failure::malformed("csr_signature", "must be base64 of 64 bytes"))?;
    let message = register_message(join.as_ref().unwrap_or(&claims.jti), csr.der());
    if !ZebraVerifier.verify(&message, &signature, claims.pubkey.as_bytes()) {
        let refusal = Refusal::field(
            Code::SignatureInvalid,
            "csr_signature",
            "does not verify over the token's id and the request with the agent's key",
        );
        return Err(Failure::new(403, refusal));
    }
    let quoted = match &request.attestation {
        None => None,
        Some(attestation) => {
            let data = attestation_data(&claims.pubkey, &message);
            Some(attest::verify(attestation, &data).map_err(bad_quote)?)
        }
    };
    check_rotation(gateway, request, &claims)?;
    let invalid =
        |field: &str, what: &dyn Display| Failure::new(400, Refusal::field(Code::InvalidField, field, what));
    let hostname = request.hostname.as_deref().map(str::parse::<Label<253>>);
    if let Some(Err(e)) = hostname {
        return Err(invalid("hostname", &e));
    }
    let version = request.agent_version.as_deref().filter(|v| !v.is_empty());
    if let Some(Err(e)) = version.map(str::parse::<Label<32>>) {
        return Err(invalid("agent_version", &e));
    }
    if request.hardware_fingerprint.as_ref().is_some_and(|f| {
        f.len() != 64
            || !f
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    }) {
        let what = "must be the lower-case hex of a SHA-256";
        return Err(invalid("hardware_fingerprint", &what));
    }
    if request.probe_port == Some(0) {
        let what = "must be 1 to 65535; a node that answers no probes leaves it out";
        return Err(invalid("probe_port", &what));
    }
    if let Some(address) = request.probe_address.filter(|a| !is_probe_address(*a)) {
        let what = format!(
            "must be an address at which peers reach this one node, none that is unspecified, multicast, broadcast or of \
             fe80::/10; is {address}"
        );
        return Err(invalid("probe_address", &what));
    }
    Ok(Checked {
        claims,
        csr,
        join,
        quoted,
    })
}

/// A request with a node's token need not name the node; one that does names that one.
fn same_node(request: &RegisterRequest, claims: &Claims) -> Result<(), Failure> {
    if request.node_id.as_ref().is_none_or(|node| *node == claims.sub) {
        return Ok(());
    }
    let what = format!(
        "node_id: is not {}, the node that the token was made for",
        claims.sub
    );
    let remedy = "leave it out, or use a token that was made for it";
    Err(Failure::new(403, Refusal::advised(Code::IdentityMismatch, what, remedy)).of("node_id"))
}

fn bad_quote(e: BadQuote) -> Failure {
    match e {
        BadQuote::Base64(_) | BadQuote::Unreadable(..) | BadQuote::Pcrs => {
            Failure::malformed("attestation", e)
        }
        BadQuote::Signature | BadQuote::Signer | BadQuote::Data | BadQuote::Digest => {
            Failure::new(403, Refusal::field(Code::SignatureInvalid, "attestation", e))
        }
    }
}

/// The old key's consent, checked against the node on record; the contract has the last word.
fn check_rotation(gateway: &Gateway, request: &RegisterRequest, claims: &Claims) -> Result<(), Failure> {
    let (nonce, signature) = match (&request.registration_nonce, &request.rotation_signature) {
        (None, None) => return Ok(()),
        (Some(nonce), Some(signature)) => (nonce, signature),
        _ => {
            let what = "is needed together with the other of registration_nonce and rotation_signature";
            return Err(Failure::malformed("rotation_signature", what));
        }
    };
    let nonce: [u8; 32] = base64_exact(nonce)
        .ok_or_else(|| Failure::malformed("registration_nonce", "must be base64 of 32 bytes"))?;
    let signature: [u8; 64] = base64_exact(signature)
        .ok_or_else(|| Failure::malformed("rotation_signature", "must be base64 of 64 bytes"))?;
    let registry = &gateway.registry;
    let Some(node) = registry.node(&claims.cluster_id, &claims.sub) else {
        return Ok(());
    };
    // Once the rotation is on chain, the repeated request finds the new key there.
    if *node.key() == claims.pubkey {
        return Ok(());
    }
    let message = key_rotation_message(
        registry.chain_id(),
        registry.contract(),
        &claims.cluster_id,
        &claims.sub,
        &claims.pubkey,
        &nonce,
    );
    if ZebraVerifier.verify(&message, &signature, node.key().as_bytes()) {
        return Ok(());
    }
    let what = "does not verify over the new key and registration_nonce with the node's present key";
    Err(Failure::new(
        403,
        Refusal::field(Code::SignatureInvalid, "rotation_signature", what),
    ))
}
