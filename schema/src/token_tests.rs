use std::convert::Infallible;

use ed25519_zebra::{SigningKey, VerificationKey};
use proptest::prelude::*;

use super::*;
use crate::key::ZebraVerifier;

const NOW: UnixSeconds = UnixSeconds(1_769_781_900);

fn key() -> (SigningKey, AgentKey) {
    let sk = SigningKey::from([9; 32]);
    let vk: [u8; 32] = VerificationKey::from(&sk).into();
    (sk, AgentKey::from_bytes(vk).unwrap())
}

fn claims() -> TokenClaims {
    TokenClaims {
        iss: "virtengine-provider".into(),
        sub: "node-hpc1-compute-042".parse().unwrap(),
        cluster_id: "hpc-cluster-1".parse().unwrap(),
        provider_address: Some("wasm1owner".into()),
        pubkey: key().1,
        jti: "01JJW5Z3V9".into(),
        iat: NOW.minus(60),
        exp: NOW.plus(86_400),
        ca_sha256: "ab".repeat(32),
        chain_id: "chain-1".into(),
        contract: "wasm1contract".into(),
        task_key: None,
        endpoint: Some("https://provider.example.com:8443".into()),
    }
}

fn signed(header: &str, payload: &[u8]) -> String {
    let input = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let signature: [u8; 64] = key().0.sign(input.as_bytes()).into();
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn verify(token: &str) -> Result<TokenClaims, Code> {
    verify_token(token, &key().1, NOW, &ZebraVerifier).map_err(|r| r.code)
}

fn good() -> String {
    encode_token(&claims(), |m| Ok::<_, Infallible>(key().0.sign(m).into())).unwrap()
}

#[test]
fn a_token_reads_back_with_and_without_its_signature() {
    assert_eq!(verify(&good()), Ok(claims()));
    assert_eq!(read_token_unverified(&good()).unwrap(), claims());
}

#[test]
fn the_name_of_rfc_9864_is_accepted_and_every_other_algorithm_refused() {
    let payload = serde_json::to_vec(&claims()).unwrap();
    assert_eq!(
        verify(&signed(r#"{"alg":"Ed25519","typ":"JWT"}"#, &payload)),
        Ok(claims())
    );
    for alg in ["none", "None", "HS256", "ES256", "Ed448", "eddsa", ""] {
        let header = format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#);
        assert_eq!(
            verify(&signed(&header, &payload)),
            Err(Code::TokenInvalid),
            "{alg}"
        );
    }
    for header in [
        r#"{"typ":"JWT"}"#,
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","typ":"JWE"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","crit":["exp"]}"#,
        r#"{"alg":"none","alg":"EdDSA","typ":"JWT"}"#,
        "[]",
        "",
    ] {
        assert_eq!(
            verify(&signed(header, &payload)),
            Err(Code::TokenInvalid),
            "{header}"
        );
    }
}

#[test]
fn a_token_ends_at_exp() {
    let exp = claims().exp;
    let at = |now| verify_token(&good(), &key().1, now, &ZebraVerifier).map_err(|r| r.code);
    assert!(at(exp.minus(1)).is_ok());
    assert_eq!(at(exp), Err(Code::TokenExpired));
    assert_eq!(at(UnixSeconds(u64::MAX)), Err(Code::TokenExpired));
}

#[test]
fn another_signer_or_a_changed_byte_is_refused() {
    let other: [u8; 32] = VerificationKey::from(&SigningKey::from([1; 32])).into();
    let other = AgentKey::from_bytes(other).unwrap();
    let refusal = verify_token(&good(), &other, NOW, &ZebraVerifier).unwrap_err();
    assert_eq!(refusal.code, Code::TokenInvalid);
    assert!(
        refusal.message.ends_with(Code::TokenInvalid.remedy()),
        "{refusal}"
    );
    let token = good();
    for i in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[i] = if bytes[i] == b'A' { b'B' } else { b'A' };
        assert!(verify(std::str::from_utf8(&bytes).unwrap()).is_err(), "byte {i}");
    }
}

#[test]
fn padding_foreign_alphabet_extra_parts_and_length_are_refused() {
    let token = good();
    for bad in [
        format!("{token}="),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}.{token}"),
        format!(" {token}"),
        format!("{token}\n"),
        token.replace('.', "+"),
        "a".repeat(MAX_TOKEN_BYTES + 1),
        String::new(),
        "..".into(),
    ] {
        assert_eq!(verify(&bad), Err(Code::TokenInvalid), "{bad}");
    }
}

#[test]
fn claims_out_of_form_are_refused() {
    let base = serde_json::to_value(claims()).unwrap();
    for (field, value) in [
        ("jti", serde_json::json!("")),
        ("jti", serde_json::json!("x".repeat(65))),
        ("ca_sha256", serde_json::json!("AB".repeat(32))),
        ("pubkey", serde_json::json!("AAAA")),
        ("sub", serde_json::json!("a/b")),
        ("exp", serde_json::json!(-1)),
        ("exp", serde_json::Value::Null),
    ] {
        let mut c = base.clone();
        c[field] = value;
        let token = signed(r#"{"alg":"EdDSA","typ":"JWT"}"#, c.to_string().as_bytes());
        assert_eq!(verify(&token), Err(Code::TokenInvalid), "{field}");
    }
}

#[test]
fn a_token_that_would_be_too_long_is_not_made() {
    let c = TokenClaims {
        endpoint: Some("x".repeat(4096)),
        ..claims()
    };
    let made = encode_token(&c, |m| Ok::<_, Infallible>(key().0.sign(m).into()));
    assert!(matches!(made, Err(TokenError::TooLong(_))));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "[A-Za-z0-9_.-]{0,200}") {
        prop_assert!(verify(&text).is_err());
    }
}
