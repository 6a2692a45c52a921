//! The client certificate: chosen, renewed at two thirds of its life, recovered once it has expired.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::bytes::base64_exact;
use hpc_schema::gateway::{
    CertificateRequest, CertificateResponse, ChallengeResponse, Problem, RecoverRequest, certificate_path,
    challenge_path, recover_message, recover_path,
};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::Agent;
use crate::clock::{Clock, instant};
use crate::config::Config;
use crate::files::{Durability, Replace, write};
use crate::heartbeat::{Finding, Severity};
use crate::probe::fingerprint::Fingerprint;
use crate::random;
use crate::register::Csr;
use crate::state::{CertificateStatus, Registration, StateDir};
use crate::uplink::{Answer, Client, Identity, TlsError, Trust, check_issued, client_config, newest};

/// The newest certificate of this node: as `register` wrote it, or renewed.
pub(super) fn best(config: &Config, state: &StateDir, registration: &Registration) -> Option<Identity> {
    let renewed = state.renewed_identity();
    let configured = (config.tls.client_cert.as_path(), config.tls.client_key.as_path());
    let (found, problems) = newest(&[configured, (&renewed, &renewed)]);
    for problem in problems {
        tracing::warn!("a certificate cannot be used: {problem}");
    }
    let ours = |id: &Identity| {
        id.names()
            .is_some_and(|(c, n)| *c == registration.cluster_id && *n == registration.node_id)
    };
    found.filter(|id| {
        let ours = ours(id);
        if !ours {
            tracing::warn!("{} names another node; it is not used", id.path().display());
        }
        ours
    })
}

/// TLS that trusts the CA of the registration token, as long as the registration lasts.
pub(super) fn tls(
    config: &Config,
    registration: &Registration,
    identity: Option<&Identity>,
    clock: &Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let trust = Trust::new(registration.ca_sha256, &config.tls.ca_cert);
    client_config(trust, identity, clock)
}

/// Whether this is still the machine that was registered.
pub(super) fn hardware(registration: &Registration, now: Option<Fingerprint>) -> Vec<Finding> {
    let changes = match (&registration.fingerprint, now) {
        (Some(before), Some(now)) => now.changes_since(before),
        _ => Vec::new(),
    };
    if changes.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "the hardware is not the one registered ({}); register the node again",
        changes.join(", ")
    );
    tracing::warn!("{message}");
    vec![Finding {
        severity: Severity::Degraded,
        code: "hardware_changed",
        message,
    }]
}

impl Agent {
    /// Sees to a usable certificate; the error is a pause that the gateway asked for, if it did.
    pub(super) async fn ensure_certificate(&mut self) -> Result<(), Option<Duration>> {
        let now = self.clock.seconds();
        let valid = self.identity.as_ref().is_some_and(|id| id.is_valid(now));
        if !valid || self.certificate_refused {
            let result = self.recover().await;
            self.certificate_refused = false;
            return result.map_err(|message| {
                self.problem(
                    "certificate_expired",
                    &format!("the client certificate is expired, refused or missing, and cannot be recovered: {message}"),
                    "check the gateway's log; if the node was deregistered, register it again with a new token",
                );
                None
            });
        }
        let due = self.identity.as_ref().is_some_and(|id| now >= id.renew_at());
        if due
            && instant() >= self.renew_not_before
            && let Err(message) = self.renew().await
        {
            let pause = self.renew_backoff.next(random::up_to);
            self.renew_not_before = instant().checked_add(pause).unwrap_or_else(instant);
            tracing::warn!("the client certificate is not renewed yet: {message}; next try in {pause:?}");
        }
        self.note_certificate();
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), String> {
        let csr = Csr::generate(self.registration.node_id.as_str()).map_err(|e| e.to_string())?;
        let body = json(&CertificateRequest { csr: csr.pem.clone() })?;
        let path = certificate_path(&self.registration.node_id);
        let answer = self.client.post(&path, body).await.map_err(|e| e.to_string())?;
        let response: CertificateResponse = read(&answer)?;
        self.take_certificate(&response, &csr.key_pem)?;
        tracing::info!("client certificate renewed");
        Ok(())
    }

    /// Server-authenticated TLS, a challenge, the agent key's signature.
    async fn recover(&mut self) -> Result<(), String> {
        let tls = tls(&self.config, &self.registration, None, &self.clock).map_err(|e| e.to_string())?;
        let mut client = Client::new(self.config.endpoints.clone(), tls, self.config.request_timeout)
            .dialing(self.world.dial.clone());
        let node = &self.registration.node_id;
        let answer = client
            .post(&challenge_path(node), b"{}".to_vec())
            .await
            .map_err(|e| e.to_string())?;
        let challenge: ChallengeResponse = read(&answer)?;
        let bytes =
            base64_exact::<32>(&challenge.challenge).ok_or("the challenge is not base64 of 32 bytes")?;
        let csr = Csr::generate(node.as_str()).map_err(|e| e.to_string())?;
        let der = Csr::der(&csr.pem).map_err(|e| e.to_string())?;
        let signature = STANDARD.encode(self.key.sign(&recover_message(&bytes, &der)));
        let request = RecoverRequest {
            challenge: challenge.challenge,
            csr: csr.pem.clone(),
            signature,
        };
        let answer = client
            .post(&recover_path(node), json(&request)?)
            .await
            .map_err(|e| e.to_string())?;
        let response: CertificateResponse = read(&answer)?;
        self.take_certificate(&response, &csr.key_pem)?;
        tracing::info!("client certificate recovered with the agent's key");
        Ok(())
    }

    fn take_certificate(
        &mut self,
        response: &CertificateResponse,
        key_pem: &Zeroizing<String>,
    ) -> Result<(), String> {
        let path = self.state.renewed_identity();
        let identity =
            Identity::from_pem(&path, &response.certificate, key_pem).map_err(|e| e.to_string())?;
        let r = &self.registration;
        let ours = (&r.cluster_id, &r.node_id);
        check_issued(&identity, &response.ca, r.ca_sha256, ours, self.clock.seconds())
            .map_err(|e| e.to_string())?;
        // Certificate and key in one file: they cannot come apart in a crash.
        let both = Zeroizing::new(format!(
            "{}\n{}",
            response.certificate.trim_end(),
            key_pem.as_str()
        ));
        if let Err(e) = write(&path, both.as_bytes(), 0o600, Replace::Yes, Durability::Synced) {
            // It serves until the next start all the same.
            tracing::warn!("the new certificate is in use but cannot be kept: {e}");
        }
        let tls =
            tls(&self.config, &self.registration, Some(&identity), &self.clock).map_err(|e| e.to_string())?;
        self.client.set_tls(tls);
        self.identity = Some(identity);
        self.renew_backoff.reset();
        self.note_certificate();
        Ok(())
    }

    fn note_certificate(&mut self) {
        self.status.certificate = self.identity.as_ref().map(|id| CertificateStatus {
            path: id.path().display().to_string(),
            not_after: id.not_after(),
            renew_at: id.renew_at(),
        });
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| e.to_string())
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, String> {
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body).map_err(|e| format!("the answer cannot be read: {e}"));
    }
    Err(match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(p) => format!("{}: {}", p.code, p.detail),
        Err(_) => format!("HTTP {}", answer.status),
    })
}
