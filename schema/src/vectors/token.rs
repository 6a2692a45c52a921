use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{CHAIN_ID, CONTRACT, Case, NOW, Signer, VectorError, result_of};
use crate::key::{AgentKey, ZebraVerifier};
use crate::time::UnixSeconds;
use crate::token::{TokenClaims, encode_token, verify_token};

fn claims() -> Result<TokenClaims, VectorError> {
    Ok(TokenClaims {
        iss: "virtengine-provider".into(),
        sub: "node-hpc1-compute-042".parse().map_err(VectorError::input)?,
        cluster_id: "hpc-cluster-1".parse().map_err(VectorError::input)?,
        provider_address: None,
        pubkey: Signer::from_seed(1)?.public,
        jti: "0b6a1f7c2d3e4f50".into(),
        iat: UnixSeconds(NOW - 60),
        exp: UnixSeconds(NOW + 86_400),
        ca_sha256: "5f".repeat(32),
        chain_id: CHAIN_ID.into(),
        contract: CONTRACT.into(),
        task_key: Some(Signer::from_seed(3)?.public),
        endpoint: Some("https://provider.example.com:8443".into()),
    })
}

fn with_header(signer: &Signer, header: &str, claims: &TokenClaims) -> Result<String, VectorError> {
    let claims = serde_json::to_vec(claims).map_err(VectorError::input)?;
    let input = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let signature = signer.sign(input.as_bytes());
    Ok(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

pub(super) fn generate() -> Result<Value, VectorError> {
    let (gateway, other) = (Signer::from_seed(2)?, Signer::from_seed(4)?);
    let claims = claims()?;
    let good =
        encode_token(&claims, |m| Ok::<_, VectorError>(gateway.sign(m))).map_err(VectorError::input)?;
    let foreign =
        encode_token(&claims, |m| Ok::<_, VectorError>(other.sign(m))).map_err(VectorError::input)?;
    let unsigned = good
        .rsplit_once('.')
        .map_or(String::new(), |(input, _)| format!("{input}."));
    let tokens = [
        ("issued by the gateway", good.clone(), NOW),
        (
            "alg Ed25519",
            with_header(&gateway, r#"{"alg":"Ed25519","typ":"JWT"}"#, &claims)?,
            NOW,
        ),
        (
            "alg none",
            with_header(&gateway, r#"{"alg":"none","typ":"JWT"}"#, &claims)?,
            NOW,
        ),
        (
            "alg HS256",
            with_header(&gateway, r#"{"alg":"HS256","typ":"JWT"}"#, &claims)?,
            NOW,
        ),
        (
            "no typ",
            with_header(&gateway, r#"{"alg":"EdDSA"}"#, &claims)?,
            NOW,
        ),
        ("no signature", unsigned, NOW),
        ("another signer", foreign, NOW),
        ("padded base64", format!("{good}="), NOW),
        ("one second before exp", good.clone(), NOW + 86_399),
        ("at exp", good, NOW + 86_400),
    ];
    let mut cases = Vec::new();
    for (name, token, now) in tokens {
        let result = verify_token(&token, &gateway.public, UnixSeconds(now), &ZebraVerifier);
        cases.push(json!({"name": name, "token": token, "now": now, "result": result_of(&result)}));
    }
    Ok(json!({
        "description": "Registration tokens: compact JWS, EdDSA or Ed25519, strict base64url without padding.",
        "context": {"gateway": gateway.json(), "token_key": gateway.public.to_base64(), "claims": claims},
        "cases": cases,
    }))
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let key: AgentKey = context.parsed("token_key")?;
    let now = UnixSeconds(case.number("now")?);
    let result = verify_token(case.text("token")?, &key, now, &ZebraVerifier);
    if let Ok(claims) = &result {
        context.same(
            "claims",
            &serde_json::to_value(claims).map_err(VectorError::input)?,
        )?;
    }
    case.same("result", &result_of(&result))
}
