//! The client certificate: chosen, renewed at two thirds of its life, recovered once it has expired.

use std::sync::Arc;
use std::time::Duration;

use hpc_schema::gateway::{CertificateRequest, CertificateResponse, Problem, certificate_path};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::Agent;
use super::recover::RecoverError;
use crate::clock::{Clock, instant};
use crate::config::Config;
use crate::files::{Durability, Replace, write};
use crate::key::SharedSigner;
use crate::probe::fingerprint::Fingerprint;
use crate::random;
use crate::register::Csr;
use crate::state::{CertificateStatus, Registration, StateDir};
use crate::uplink::{Answer, Identity, TlsError, Trust, check_issued, client_config, newest};

/// The newest certificate of this node: as `register` wrote it, or renewed.
pub(crate) fn best(config: &Config, state: &StateDir, registration: &Registration) -> Option<Identity> {
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
    // One of another registration does not count: better asked for anew than refused.
    let found = found.filter(|id| id.epoch().is_none_or(|epoch| epoch == registration.epoch));
    found.filter(|id| {
        let ours = ours(id);
        if !ours {
            tracing::warn!("{} names another node; it is not used", id.path().display());
        }
        ours
    })
}

/// TLS that trusts the CA of the registration token, as long as the registration lasts.
pub(crate) fn tls(
    config: &Config,
    registration: &Registration,
    identity: Option<&Identity>,
    clock: &Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let trust = Trust::new(registration.ca_sha256, &config.tls.ca_cert);
    client_config(trust, identity, clock)
}

/// Why this is not the machine that was registered, if it is not.
pub(super) fn hardware(registration: &Registration, now: Option<Fingerprint>) -> Option<String> {
    let changes = match (&registration.fingerprint, now) {
        (Some(before), Some(now)) => now.changes_since(before),
        _ => Vec::new(),
    };
    if changes.is_empty() {
        return None;
    }
    let message = format!(
        "the hardware is not the one registered ({}); register the node again",
        changes.join(", ")
    );
    tracing::warn!("{message}");
    Some(message)
}

impl Agent {
    /// Sees to a usable certificate; the error is a pause that the gateway asked for, if it did.
    pub(super) async fn ensure_certificate(&mut self) -> Result<(), Option<Duration>> {
        let now = self.clock.seconds();
        let valid = self.identity.as_ref().is_some_and(|id| id.is_valid(now));
        if !valid || self.certificate_refused {
            let result = self.recover().await;
            self.certificate_refused = false;
            return result.map_err(|e| {
                let message = format!(
                    "the client certificate is expired, refused or missing, and cannot be recovered: {e}"
                );
                self.problem(e.code(), &message, e.remedy());
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
        let response: CertificateResponse = read(&answer).map_err(|e| e.to_string())?;
        self.take_certificate(&response, &csr.key_pem, Arc::clone(&self.key))?;
        tracing::info!("client certificate renewed");
        Ok(())
    }

    /// `key` is the one that the certificate was asked for with.
    pub(super) fn take_certificate(
        &mut self,
        response: &CertificateResponse,
        key_pem: &Zeroizing<String>,
        key: SharedSigner,
    ) -> Result<(), String> {
        let path = self.state.renewed_identity();
        let identity =
            Identity::from_pem(&path, &response.certificate, key_pem).map_err(|e| e.to_string())?;
        let r = &self.registration;
        let ours = (&r.cluster_id, &r.node_id);
        check_issued(&identity, &response.ca, r.ca_sha256, ours, self.clock.seconds())
            .map_err(|e| e.to_string())?;
        // The registration first: a certificate of an epoch that is not on record is asked for again.
        match identity.epoch() {
            Some(epoch) if epoch > r.epoch || key.public() != r.public_key => self.adopt(key, epoch)?,
            None if key.public() != r.public_key => return Err("the certificate names no epoch".into()),
            _ => {}
        }
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

pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| e.to_string())
}

pub(super) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, RecoverError> {
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
