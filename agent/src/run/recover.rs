//! A certificate by the agent's key, when the one in use has expired, was refused or belongs to a registration that has
//! been replaced. Protocol decision 4.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    CertificateResponse, ChallengeResponse, RecoverRequest, challenge_path, recover_message, recover_path,
};
use zeroize::Zeroizing;

use super::Agent;
use super::certificate::{json, read, tls};
use crate::key::{SharedSigner, others};
use crate::register::Csr;
use crate::uplink::{Client, UplinkError};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoverError {
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
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl RecoverError {
    fn refusal(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Code::from_word(code),
            Self::Uplink(_) | Self::Failed(_) => None,
        }
    }

    /// The key is not the one that the gateway knows.
    fn is_other_key(&self) -> bool {
        self.refusal() == Some(Code::SignatureInvalid)
    }

    /// For status and log.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::Uplink(e) => e.code(),
            Self::Failed(_) => "certificate_expired",
        }
    }

    /// What to do.
    pub(super) fn remedy(&self) -> &'static str {
        match (self, self.refusal()) {
            (_, Some(Code::SignatureInvalid)) => {
                "another key is registered for this node: restore that key, or register again with a new token"
            }
            (_, Some(Code::NodeDeregistered | Code::UnknownNode)) => {
                "register the node again with a new token: virtengine-node-agent register"
            }
            (_, Some(code)) => code.remedy(),
            (Self::Uplink(e), None) => e.remedy(),
            (_, None) => "check the gateway's log; the agent keeps trying",
        }
    }
}

impl Agent {
    /// With the key in use, else with another one on the disk: a rotation or a new registration by another process may
    /// have made it the one that counts.
    pub(super) async fn recover(&mut self) -> Result<(), RecoverError> {
        let present = Arc::clone(&self.key);
        let refused = match self.recover_with(&present).await {
            Err(e) if e.is_other_key() => e,
            other => return other,
        };
        let (path, known) = (self.config.key_path.clone(), present.public());
        // Keys may lie in devices that take their time.
        let keys = tokio::task::spawn_blocking(move || others(&path, &known));
        for key in keys.await.unwrap_or_default() {
            match self.recover_with(&key).await {
                Err(e) if e.is_other_key() => {}
                other => return other,
            }
        }
        Err(refused)
    }

    /// Server-authenticated TLS, a challenge, the key's signature.
    async fn recover_with(&mut self, key: &SharedSigner) -> Result<(), RecoverError> {
        let (response, key_pem) = self.ask_for_certificate(key).await?;
        self.take_certificate(&response, &key_pem, Arc::clone(key))
            .map_err(RecoverError::Failed)?;
        tracing::info!("client certificate recovered with the agent's key");
        Ok(())
    }

    async fn ask_for_certificate(
        &mut self,
        key: &SharedSigner,
    ) -> Result<(CertificateResponse, Zeroizing<String>), RecoverError> {
        let failed = |e: &dyn std::fmt::Display| RecoverError::Failed(e.to_string());
        let tls = tls(&self.config, &self.registration, None, &self.clock).map_err(|e| failed(&e))?;
        let mut client = Client::new(self.config.endpoints.clone(), tls, self.config.request_timeout)
            .dialing(self.world.dial.clone());
        let node = self.registration.node_id.clone();
        let node = &node;
        let answer = client.post(&challenge_path(node), b"{}".to_vec()).await?;
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
        let body = json(&request).map_err(RecoverError::Failed)?;
        let answer = client.post(&recover_path(node), body).await?;
        Ok((read(&answer)?, csr.key_pem))
    }
}
