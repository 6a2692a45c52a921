use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Case, Signer, VectorError, result_of_code};
use crate::bytes::base64_exact;
use crate::code::Code;
use crate::gateway::{recover_message, register_message};
use crate::key::{AgentKey, Verifier as _, ZebraVerifier};

const JTI: &str = "0b6a1f7c2d3e4f50";
const CHALLENGE: [u8; 32] = [0x77; 32];
/// Any bytes do: what counts is that their SHA-256 is signed.
const CSR: &[u8] = b"stands for a certificate request in DER";

fn message(case: &Case) -> Result<Vec<u8>, VectorError> {
    let csr = case.bytes("csr_der")?;
    match case.text("kind")? {
        "register" => Ok(register_message(case.text("jti")?, &csr)),
        "recover" => Ok(recover_message(&case.array("challenge")?, &csr)),
        _ => Err(case.missing("kind")),
    }
}

fn verify(key: &AgentKey, message: &[u8], signature: &str) -> Result<(), Code> {
    let signature = base64_exact::<64>(signature).ok_or(Code::Malformed)?;
    if ZebraVerifier.verify(message, &signature, key.as_bytes()) {
        Ok(())
    } else {
        Err(Code::SignatureInvalid)
    }
}

pub(super) fn generate() -> Result<Value, VectorError> {
    let (agent, other) = (Signer::from_seed(1)?, Signer::from_seed(4)?);
    let registered = register_message(JTI, CSR);
    let recovered = recover_message(&CHALLENGE, CSR);
    let register = |name: &str, csr: &[u8], signature: String| {
        let message = register_message(JTI, csr);
        json!({
            "name": name, "kind": "register", "jti": JTI, "csr_der": hex::encode(csr),
            "message": hex::encode(&message), "signature": signature,
            "result": result_of_code(&verify(&agent.public, &message, &signature)),
        })
    };
    let recover = |name: &str, challenge: [u8; 32], signature: String| {
        let message = recover_message(&challenge, CSR);
        json!({
            "name": name, "kind": "recover", "challenge": hex::encode(challenge), "csr_der": hex::encode(CSR),
            "message": hex::encode(&message), "signature": signature,
            "result": result_of_code(&verify(&agent.public, &message, &signature)),
        })
    };
    let cases = [
        register("registration", CSR, STANDARD.encode(agent.sign(&registered))),
        register(
            "registration, another CSR",
            b"another",
            STANDARD.encode(agent.sign(&registered)),
        ),
        register(
            "registration, another key",
            CSR,
            STANDARD.encode(other.sign(&registered)),
        ),
        register("registration, the message without its domain", CSR, {
            STANDARD.encode(agent.sign(registered.get(15..).unwrap_or_default()))
        }),
        recover("recovery", CHALLENGE, STANDARD.encode(agent.sign(&recovered))),
        recover(
            "recovery, another challenge",
            [0x78; 32],
            STANDARD.encode(agent.sign(&recovered)),
        ),
        recover(
            "recovery, a signature of 63 bytes",
            CHALLENGE,
            STANDARD.encode([0; 63]),
        ),
    ];
    Ok(json!({
        "description": "Proof of the agent's key at registration (csr_signature) and at recovery of a certificate.",
        "context": {"agent": agent.json(), "public_key": agent.public.to_base64()},
        "cases": cases,
    }))
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let key: AgentKey = context.parsed("public_key")?;
    let message = message(case)?;
    case.same("message", &json!(hex::encode(&message)))?;
    case.same(
        "result",
        &result_of_code(&verify(&key, &message, case.text("signature")?)),
    )
}
