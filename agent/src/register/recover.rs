//! A certificate by the agent's key: server-authenticated TLS, a challenge, the key's signature. Protocol decision 4.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    CertificateResponse, ChallengeResponse, Problem, RecoverRequest, challenge_path, recover_message,
    recover_path,
};
use hpc_schema::id::NodeId;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::Csr;
use super::clock::{Ahead, REMEDY, left};
use crate::clock::Clock;
use crate::key::Signer;
use crate::uplink::{Answer, Client, UplinkError};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    /// The gateway said no.
    #[error("{code}: {detail}")]
    Refused {
        /// The code's word.
        code: String,
        /// For people.
        detail: String,
    },
    /// The gateway cannot be reached.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// No certificate would count here.
    #[error(transparent)]
    Clock(#[from] Ahead),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl RecoverError {
    fn refusal(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Code::from_word(code),
            Self::Uplink(_) | Self::Clock(_) | Self::Failed(_) => None,
        }
    }

    /// The key is not the one that the gateway knows.
    pub(crate) fn is_other_key(&self) -> bool {
        self.refusal() == Some(Code::SignatureInvalid)
    }

    /// Neither is the node.
    pub(crate) fn is_stranger(&self) -> bool {
        self.is_other_key() || self.refusal() == Some(Code::UnknownNode)
    }

    /// Repeating it may help. A device that signs may take longer than a challenge lives.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { .. } => matches!(
                self.refusal(),
                Some(Code::Unavailable | Code::RateLimited | Code::NonceReused)
            ),
            Self::Uplink(_) | Self::Clock(_) | Self::Failed(_) => true,
        }
    }

    /// For status and log.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::Uplink(e) => e.code(),
            Self::Clock(_) => "clock_skew",
            Self::Failed(_) => "certificate_expired",
        }
    }

    /// What to do.
    pub(crate) fn remedy(&self) -> &'static str {
        match (self, self.refusal()) {
            (_, Some(Code::SignatureInvalid)) => {
                "another key is registered for this node: restore that key, or register again with a new token"
            }
            (_, Some(Code::NodeDeregistered | Code::UnknownNode)) => {
                "register the node again with a new token: virtengine-node-agent register"
            }
            (_, Some(code)) => code.remedy(),
            (Self::Uplink(e), None) => e.remedy(),
            (Self::Clock(_), None) => REMEDY,
            (_, None) => "check the gateway's log; the agent keeps trying",
        }
    }
}

/// Asks with `key`; the certificate comes with the key that it was asked for with, PKCS#8 PEM. Where the
/// gateway fails, or its clock and ours do not fit, `client` is at the next one afterwards. `life` is how long a certificate
/// lives, as far as is known, and then as the issued one says: none is asked for that would not count by `clock`.
pub(crate) async fn recover(
    client: &mut Client,
    node: &NodeId,
    key: &dyn Signer,
    (clock, life): (&Clock, &mut Duration),
) -> Result<(CertificateResponse, Zeroizing<String>), RecoverError> {
    let failed = |e: &dyn std::fmt::Display| RecoverError::Failed(e.to_string());
    let answer = client.post(&challenge_path(node), b"{}".to_vec()).await;
    let answer = client.judged(answer)?;
    Ahead::look(client, &answer, clock, *life)?;
    let challenge: ChallengeResponse = read(&answer)?;
    let bytes = base64_exact::<32>(&challenge.challenge)
        .ok_or_else(|| failed(&"the challenge is not base64 of 32 bytes"))?;
    let csr = Csr::generate(node.as_str()).map_err(|e| failed(&e))?;
    let der = Csr::der(&csr.pem).map_err(|e| failed(&e))?;
    let signature = key
        .sign(&recover_message(&bytes, &der))
        .await
        .map_err(|e| failed(&e))?;
    let request = RecoverRequest {
        challenge: challenge.challenge,
        csr: csr.pem.clone(),
        signature: STANDARD.encode(signature),
    };
    let body = serde_json::to_vec(&request).map_err(|e| failed(&e))?;
    let answer = client.post(&recover_path(node), body).await;
    let answer = client.judged(answer)?;
    let response: CertificateResponse = read(&answer)?;
    if let Some(left) = left(&answer, &response.certificate, &csr.key_pem) {
        *life = left;
        Ahead::look(client, &answer, clock, left)?;
    }
    Ok((response, csr.key_pem))
}

/// The answer, or what the gateway says instead.
pub(crate) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, RecoverError> {
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body)
            .map_err(|e| RecoverError::Failed(format!("the answer cannot be read: {e}")));
    }
    Err(match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(p) => RecoverError::Refused {
            code: p.code,
            detail: p.detail,
        },
        Err(_) => RecoverError::Failed(format!("HTTP {}", answer.status)),
    })
}
