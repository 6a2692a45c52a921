//! Registration tokens: compact JWS with Ed25519 (protocol decision 4, RFC 7515, RFC 8037, RFC 9864).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;
use crate::time::UnixSeconds;

/// Longer tokens are refused unread.
pub const MAX_TOKEN_BYTES: usize = 4096;

/// What a token says. The agent pins CA, chain, contract and task key by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenClaims {
    /// Who issued it: the gateway.
    pub iss: String,
    /// The node.
    pub sub: NodeId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Bech32 address of the cluster's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_address: Option<String>,
    /// The agent's key.
    pub pubkey: AgentKey,
    /// Names this token; used once.
    #[schemars(length(min = 1, max = 64))]
    pub jti: String,
    /// When it was issued.
    pub iat: UnixSeconds,
    /// From when on it no longer counts.
    pub exp: UnixSeconds,
    /// Lower-case hex SHA-256 of the gateway CA's DER.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub ca_sha256: String,
    /// The chain.
    pub chain_id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// Key that signs commands and tasks, once the cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<AgentKey>,
    /// The gateway's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// What a join token says: as [`TokenClaims`] without node and key. Several nodes of the cluster register with
/// it, each under the `node_id` and with the key of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinClaims {
    /// Who issued it: the gateway.
    pub iss: String,
    /// Always `join`; tells it from a node's token.
    pub purpose: JoinPurpose,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Bech32 address of the cluster's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_address: Option<String>,
    /// Names this token.
    #[schemars(length(min = 1, max = 64))]
    pub jti: String,
    /// When it was issued.
    pub iat: UnixSeconds,
    /// From when on it no longer counts.
    pub exp: UnixSeconds,
    /// Lower-case hex SHA-256 of the gateway CA's DER.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub ca_sha256: String,
    /// The chain.
    pub chain_id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// Key that signs commands and tasks, once the cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<AgentKey>,
    /// The gateway's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// The only purpose of a [`JoinClaims`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinPurpose {
    /// Registers nodes of one cluster.
    Join,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

/// Why a token could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError<E> {
    /// The claims could not be written as JSON.
    #[error("the token's claims cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The token would be longer than [`MAX_TOKEN_BYTES`].
    #[error("the token would have {0} bytes, at most {MAX_TOKEN_BYTES} are allowed; shorten the endpoint")]
    TooLong(usize),
    /// The signer failed.
    #[error("the token key cannot sign: {0}")]
    Signer(E),
}

/// Makes a token; `sign` answers the Ed25519 signature of the bytes it is given.
///
/// # Errors
/// See [`TokenError`].
pub fn encode_token<E>(
    claims: &TokenClaims,
    sign: impl FnOnce(&[u8]) -> Result<[u8; 64], E>,
) -> Result<String, TokenError<E>> {
    let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"EdDSA","typ":"JWT"}"#);
    let input = format!("{header}.{}", URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims)?));
    let signature = sign(input.as_bytes()).map_err(TokenError::Signer)?;
    let token = format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature));
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::TooLong(token.len()));
    }
    Ok(token)
}

/// Reads a token's claims **without** its signature: for the agent, which cannot know the gateway's token
/// key and gets the token from its operator.
///
/// # Errors
/// [`Code::TokenInvalid`] for anything but a token of this form.
pub fn read_token_unverified(token: &str) -> Result<TokenClaims, Refusal> {
    node_claims(&split(token)?.claims)
}

/// What either kind of token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyClaims {
    /// For one node with one key.
    Node(Box<TokenClaims>),
    /// For several nodes of a cluster.
    Join(Box<JoinClaims>),
}

/// As [`read_token_unverified`], for either kind of token.
///
/// # Errors
/// [`Code::TokenInvalid`] for anything but a token of this form.
pub fn read_any_token_unverified(token: &str) -> Result<AnyClaims, Refusal> {
    let claims = split(token)?.claims;
    // Only a join token has a purpose.
    if let Ok(join) = serde_json::from_slice::<JoinClaims>(&claims) {
        check(&join.jti, &join.ca_sha256)?;
        return Ok(AnyClaims::Join(Box::new(join)));
    }
    Ok(AnyClaims::Node(Box::new(node_claims(&claims)?)))
}

/// Reads a token and checks signature and time. Whether it was used or revoked is the store's to know.
///
/// # Errors
/// [`Code::TokenInvalid`] for another form, algorithm or signer; [`Code::TokenExpired`] from `exp` on.
pub fn verify_token(
    token: &str,
    token_key: &AgentKey,
    now: UnixSeconds,
    verifier: &impl Verifier,
) -> Result<TokenClaims, Refusal> {
    let parts = split(token)?;
    if !verifier.verify(parts.input.as_bytes(), &parts.signature, token_key.as_bytes()) {
        return Err(invalid("is not signed by this gateway"));
    }
    let claims = node_claims(&parts.claims)?;
    if now >= claims.exp {
        return Err(Refusal::field(
            Code::TokenExpired,
            "token",
            format_args!("expired at {}, it is {now}", claims.exp),
        ));
    }
    Ok(claims)
}

struct Parts<'a> {
    input: &'a str,
    signature: [u8; 64],
    /// JSON.
    claims: Vec<u8>,
}

fn invalid(what: &str) -> Refusal {
    Refusal::field(Code::TokenInvalid, "token", what)
}

fn split(token: &str) -> Result<Parts<'_>, Refusal> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(invalid("is longer than 4096 bytes"));
    }
    let form = || invalid("is not three parts of base64url without padding, joined by dots");
    let (input, signature) = token.rsplit_once('.').ok_or_else(form)?;
    let (header, claims) = input.split_once('.').ok_or_else(form)?;
    // A dot left in a part is no base64url, so there are exactly three parts.
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| form());
    let (header, claims, signature) = (decode(header)?, decode(claims)?, decode(signature)?);
    let header: Header =
        serde_json::from_slice(&header).map_err(|_| invalid("has a header that is not of a JWT"))?;
    if !matches!(header.alg.as_str(), "EdDSA" | "Ed25519") {
        return Err(invalid("has an algorithm other than EdDSA or Ed25519"));
    }
    if header.typ.as_deref() != Some("JWT") || header.crit.is_some() {
        return Err(invalid("has a header that is not of a plain JWT"));
    }
    let signature = signature
        .try_into()
        .map_err(|_| invalid("has a signature that is not 64 bytes"))?;
    Ok(Parts {
        input,
        signature,
        claims,
    })
}

fn node_claims(json: &[u8]) -> Result<TokenClaims, Refusal> {
    let claims: TokenClaims = serde_json::from_slice(json).map_err(|e| {
        Refusal::field(
            Code::TokenInvalid,
            "token",
            format_args!("has unreadable claims: {e}"),
        )
    })?;
    check(&claims.jti, &claims.ca_sha256)?;
    Ok(claims)
}

fn check(jti: &str, ca_sha256: &str) -> Result<(), Refusal> {
    if jti.is_empty() || jti.len() > 64 || !jti.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(invalid(
            "has a jti that is not 1 to 64 printable ASCII characters",
        ));
    }
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if ca_sha256.len() != 64 || !ca_sha256.bytes().all(hex) {
        return Err(invalid("has a ca_sha256 that is not 64 lower-case hex digits"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
