//! A TPM's quote in a registration: checked here, its key pinned for the node. Why, and what it does not prove:
//! docs/adr/0009-keys-in-devices.md.

mod parse;
mod store;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{Attestation, Pcr};
use hpc_schema::id::{ClusterId, NodeId};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use parse::Unreadable;
pub use store::{expect, expected_of_token, pin, pinned};

use crate::db::Conn;
use crate::store::StoreError;

/// `TPM_RH_ENDORSEMENT`: the parent of the attestation key.
const ENDORSEMENT: [u8; 4] = 0x4000_000b_u32.to_be_bytes();
/// Names begin with their hash algorithm, SHA-256.
const NAME: [u8; 2] = 0x000b_u16.to_be_bytes();
/// A field of the request that is longer is not decoded.
const MOST: usize = 4096;

/// Why a quote counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuote {
    /// No base64, or too long.
    #[error("attestation.{0} must be base64 of at most {MOST} characters")]
    Base64(&'static str),
    /// Not what a TPM writes.
    #[error("attestation.{0} {1}")]
    Unreadable(&'static str, Unreadable),
    /// A register's value.
    #[error(
        "attestation.pcrs must list the quoted PCRs in rising order, each with the lower-case hex of 32 bytes"
    )]
    Pcrs,
    /// Signed by another key.
    #[error("the quote is not signed by attestation.public")]
    Signature,
    /// Signed by a key that the TPM has under another parent.
    #[error("the quote names another signer than attestation.public of the endorsement hierarchy")]
    Signer,
    /// Of another request or key.
    #[error("the quote is not of this registration: its qualifying data is another")]
    Data,
    /// The values are not those that were quoted.
    #[error("the PCRs are not those that were quoted")]
    Digest,
}

/// What a good quote says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted {
    /// The attestation key: hex of the SHA-256 of its public area.
    pub key: String,
    /// The registers.
    pub pcrs: Vec<Pcr>,
}

/// The TPM that is pinned for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pinned {
    /// Its attestation key: hex of the SHA-256 of the key's public area.
    pub key: String,
    /// The registers at the last registration.
    pub pcrs: Vec<PcrRow>,
    /// When it was pinned, UNIX seconds.
    pub pinned_at: u64,
    /// When it last quoted, UNIX seconds.
    pub quoted_at: u64,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PcrRow {
    /// Its number.
    pub index: u8,
    /// Its value in hex.
    pub sha256: String,
}

/// Which attestation key a token asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// This one.
    Key(String),
    /// Whichever the node quotes with: it takes the place of the pinned one.
    New,
}

impl Expected {
    /// `new`, or a key as `virtengine-node-agent key show --attestation` prints it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_key = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text {
            "new" => Some(Self::New),
            key if is_key => Some(Self::Key(key.to_owned())),
            _ => None,
        }
    }
}

/// Whether the registration, which quotes by this attestation key, comes from the machine that it should come from; if
/// not, why. Pure.
///
/// # Errors
/// For people.
pub fn judge(
    quoted: Option<&str>,
    expected: Option<&Expected>,
    pinned: Option<&str>,
) -> Result<(), &'static str> {
    let wanted = match (expected, pinned) {
        (Some(Expected::New), _) if quoted.is_some() => return Ok(()),
        (Some(Expected::New), _) => {
            return Err("the token asks for a TPM's quote: set agent.tpm.quote on the node");
        }
        (Some(Expected::Key(key)), _) => key.as_str(),
        (None, Some(key)) => key,
        (None, None) => return Ok(()),
    };
    match quoted {
        Some(quoted) if quoted == wanted => Ok(()),
        Some(_) => Err(
            "the quote is another TPM's than the one pinned for this node; if its machine was replaced, make a token with --attestation-key new",
        ),
        None => Err(
            "a TPM is pinned for this node, and the registration has no quote: set agent.tpm.quote on the node",
        ),
    }
}

/// The same by what is on record now for the token `jti` and the node.
///
/// # Errors
/// If the store fails.
pub async fn judge_now(
    conn: &mut Conn,
    jti: &str,
    (cluster, node): (&ClusterId, &NodeId),
    quoted: Option<&str>,
) -> Result<Result<(), &'static str>, StoreError> {
    let expected = expected_of_token(&mut *conn, jti).await?;
    let pinned = pinned(conn, cluster, node).await?;
    let pinned = pinned.as_ref().map(|p| p.key.as_str());
    Ok(judge(quoted, expected.as_ref(), pinned))
}

/// Checks a quote over `data`.
///
/// # Errors
/// See [`BadQuote`].
pub fn verify(attestation: &Attestation, data: &[u8; 32]) -> Result<Quoted, BadQuote> {
    let decode = |name: &'static str, text: &str| {
        let short = Some(text).filter(|t| t.len() <= MOST);
        short
            .and_then(|t| STANDARD.decode(t).ok())
            .ok_or(BadQuote::Base64(name))
    };
    let area = decode("public", &attestation.public)?;
    let message = decode("quote", &attestation.quote)?;
    let signature = decode("signature", &attestation.signature)?;
    let public = parse::public(&area).map_err(|e| BadQuote::Unreadable("public", e))?;
    let quote = parse::quote(&message).map_err(|e| BadQuote::Unreadable("quote", e))?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public.point)
        .verify(&message, &signature)
        .map_err(|_| BadQuote::Signature)?;
    // The TPM itself says which key signs, with its attributes and its place.
    let key = Sha256::digest(&area);
    let qualified = Sha256::new()
        .chain_update(ENDORSEMENT)
        .chain_update(NAME)
        .chain_update(key)
        .finalize();
    if quote.signer != [&NAME[..], &qualified].concat() {
        return Err(BadQuote::Signer);
    }
    if quote.data != data {
        return Err(BadQuote::Data);
    }
    if !attestation
        .pcrs
        .iter()
        .map(|p| p.index)
        .eq(quote.pcrs.iter().copied())
        || quote.pcrs.is_empty()
    {
        return Err(BadQuote::Pcrs);
    }
    let mut digest = Sha256::new();
    for pcr in &attestation.pcrs {
        let value = Some(&pcr.sha256).filter(|t| t.len() == 64 && !t.bytes().any(|b| b.is_ascii_uppercase()));
        let value = value.and_then(|t| hex::decode(t).ok()).ok_or(BadQuote::Pcrs)?;
        digest.update(value);
    }
    let digest: [u8; 32] = digest.finalize().into();
    if quote.digest != digest {
        return Err(BadQuote::Digest);
    }
    Ok(Quoted {
        key: hex::encode(key),
        pcrs: attestation.pcrs.clone(),
    })
}
