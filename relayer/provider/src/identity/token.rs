use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::{AgentKey, Verifier as _, ZebraVerifier};
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::JoinClaims;
use serde::{Deserialize, Serialize};

use super::Seed;

/// Longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 4096;
const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// What a registration token says (protocol decision 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who made it: `virtengine-provider`.
    pub iss: String,
    /// The node that it is for.
    pub sub: NodeId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Owner of the cluster, if the gateway knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_address: Option<String>,
    /// The agent's key.
    pub pubkey: AgentKey,
    /// Unique id; used once.
    pub jti: String,
    /// Made at, UNIX seconds.
    pub iat: u64,
    /// Counts until, UNIX seconds.
    pub exp: u64,
    /// Lower-case hex SHA-256 of the CA's certificate (DER), which the agent pins.
    pub ca_sha256: String,
    /// The chain.
    pub chain_id: String,
    /// The registry contract.
    pub contract: String,
    /// Signs the cluster's commands and tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<AgentKey>,
    /// URL of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// A token that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// For one node with one key.
    Node(Box<Claims>),
    /// For several nodes of a cluster.
    Join(Box<JoinClaims>),
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not three base64url parts with a JSON header and the claims of a token.
    #[error("the token is not a registration token")]
    Malformed,
    /// An algorithm other than EdDSA.
    #[error("the token's alg must be EdDSA")]
    Algorithm,
    /// Not signed by this gateway's token key.
    #[error("the token was not made by this gateway")]
    Signature,
    /// Made for another chain or contract.
    #[error("the token was made for another chain or contract")]
    Binding,
    /// Past its expiry.
    #[error("the token has expired")]
    Expired,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    // A critical extension that is not understood must be refused (RFC 7515, 4.1.11).
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// Makes and checks tokens: compact JWS with EdDSA.
#[derive(Debug, Clone)]
pub struct TokenKey(Seed);

impl TokenKey {
    /// With this key.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(seed)
    }

    /// Issuer that stands in every token.
    pub const ISSUER: &'static str = "virtengine-provider";

    /// The token of `claims`: [`Claims`] or [`JoinClaims`].
    ///
    /// # Errors
    /// If the claims cannot be written as JSON.
    pub fn issue(&self, claims: &impl Serialize) -> Result<String, serde_json::Error> {
        let mut token = URL_SAFE_NO_PAD.encode(HEADER);
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims)?));
        let signature = self.0.sign(token.as_bytes());
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// The claims of a node's token that this gateway made, whatever its age.
    ///
    /// # Errors
    /// Everything but [`TokenError::Expired`].
    pub fn read(&self, token: &str, chain_id: &str, contract: &str) -> Result<Claims, TokenError> {
        match self.read_any(token, chain_id, contract)? {
            Token::Node(claims) => Ok(*claims),
            Token::Join(_) => Err(TokenError::Malformed),
        }
    }

    /// The claims of either kind of token that this key signed, whatever its age.
    ///
    /// # Errors
    /// Everything but [`TokenError::Expired`].
    pub fn read_any(&self, token: &str, chain_id: &str, contract: &str) -> Result<Token, TokenError> {
        read_any(token, &[*self.0.public()], chain_id, contract)
    }
}

/// The claims of either kind of token that one of `keys` signed, whatever its age.
///
/// # Errors
/// Everything but [`TokenError::Expired`].
pub(super) fn read_any(
    token: &str,
    keys: &[AgentKey],
    chain_id: &str,
    contract: &str,
) -> Result<Token, TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
    // RFC 9864 names the curve; both words mean the same here.
    if !matches!(header.alg.as_str(), "EdDSA" | "Ed25519") {
        return Err(TokenError::Algorithm);
    }
    if header.crit.is_some() || header.typ.is_some_and(|t| !t.eq_ignore_ascii_case("JWT")) {
        return Err(TokenError::Malformed);
    }
    let signature = decode(signature)?;
    let signs = |key: &AgentKey| ZebraVerifier.verify(signed.as_bytes(), &signature, key.as_bytes());
    if !keys.iter().any(signs) {
        return Err(TokenError::Signature);
    }
    let bytes = decode(claims)?;
    let bound =
        |iss: &str, chain: &str, of: &str| iss == TokenKey::ISSUER && chain == chain_id && of == contract;
    // Only a join token has a purpose.
    if let Ok(join) = serde_json::from_slice::<JoinClaims>(&bytes) {
        let sound = bound(&join.iss, &join.chain_id, &join.contract);
        return sound
            .then_some(Token::Join(Box::new(join)))
            .ok_or(TokenError::Binding);
    }
    let claims: Claims = serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)?;
    let sound = bound(&claims.iss, &claims.chain_id, &claims.contract);
    sound
        .then_some(Token::Node(Box::new(claims)))
        .ok_or(TokenError::Binding)
}

impl Claims {
    /// Whether the token counts at `now`.
    ///
    /// # Errors
    /// [`TokenError::Expired`].
    pub fn check_time(&self, now: UnixSeconds) -> Result<(), TokenError> {
        if now.0 >= self.exp {
            Err(TokenError::Expired)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            iss: TokenKey::ISSUER.into(),
            sub: "node-hpc1-compute-042".parse().unwrap(),
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            provider_address: None,
            pubkey: *Seed::from_bytes(&[1; 32]).unwrap().public(),
            jti: "0011".into(),
            iat: 100,
            exp: 200,
            ca_sha256: "ab".into(),
            chain_id: "hpc-1".into(),
            contract: "wasm1abc".into(),
            task_key: None,
            endpoint: None,
        }
    }

    fn key(n: u8) -> TokenKey {
        TokenKey::new(Seed::from_bytes(&[n; 32]).unwrap())
    }

    fn with_header(header: &str, key: &TokenKey) -> String {
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims()).unwrap());
        let signed = format!("{}.{body}", URL_SAFE_NO_PAD.encode(header));
        let signature = URL_SAFE_NO_PAD.encode(key.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    #[test]
    fn a_token_reads_back_at_its_gateway_only() {
        let token = key(2).issue(&claims()).unwrap();
        assert_eq!(key(2).read(&token, "hpc-1", "wasm1abc"), Ok(claims()));
        assert_eq!(
            key(3).read(&token, "hpc-1", "wasm1abc"),
            Err(TokenError::Signature)
        );
        assert_eq!(key(2).read(&token, "hpc-2", "wasm1abc"), Err(TokenError::Binding));
        assert_eq!(claims().check_time(UnixSeconds(199)), Ok(()));
        assert_eq!(claims().check_time(UnixSeconds(200)), Err(TokenError::Expired));
    }

    #[test]
    fn both_names_of_the_algorithm_are_taken_and_no_other() {
        let k = key(2);
        for (header, want) in [
            (r#"{"alg":"Ed25519"}"#, Ok(claims())),
            (r#"{"alg":"EdDSA","typ":"jwt"}"#, Ok(claims())),
            (r#"{"alg":"none"}"#, Err(TokenError::Algorithm)),
            (r#"{"alg":"HS256"}"#, Err(TokenError::Algorithm)),
            (r#"{"alg":"eddsa"}"#, Err(TokenError::Algorithm)),
            (r#"{"alg":"EdDSA","crit":["x"]}"#, Err(TokenError::Malformed)),
            (r#"{"alg":"EdDSA","typ":"at+jwt"}"#, Err(TokenError::Malformed)),
        ] {
            assert_eq!(
                k.read(&with_header(header, &k), "hpc-1", "wasm1abc"),
                want,
                "{header}"
            );
        }
    }

    #[test]
    fn any_changed_character_is_refused() {
        let k = key(2);
        let token = k.issue(&claims()).unwrap();
        for i in 0..token.len() {
            let mut t = token.clone().into_bytes();
            t[i] = if t[i] == b'A' { b'B' } else { b'A' };
            let t = String::from_utf8(t).unwrap();
            assert!(k.read(&t, "hpc-1", "wasm1abc").is_err(), "position {i}");
        }
        for bad in ["", ".", "..", "a.b", "a.b.c.d", &"a".repeat(5000)] {
            assert_eq!(
                k.read(bad, "hpc-1", "wasm1abc"),
                Err(TokenError::Malformed),
                "{bad:.10}"
            );
        }
    }
}
