//! The client certificate: renewed at two thirds of its life, recovered once it has expired.

use std::sync::Arc;
use std::time::Duration;

use hpc_schema::gateway::{CertificateRequest, CertificateResponse, certificate_path};
use zeroize::Zeroizing;

use super::Agent;
use super::identity::tls;
use crate::clock::instant;
use crate::key::SharedSigner;
use crate::random;
use crate::register::{Csr, read};
use crate::state::CertificateStatus;
use crate::status::SKEW_MS;
use crate::uplink::{CaPin, Identity, Known, Shown, Trust, certificates, check_issued};

impl Agent {
    /// Sees to a usable certificate; the error is a pause that the gateway asked for, if it did.
    pub(super) async fn ensure_certificate(&mut self) -> Result<(), Option<Duration>> {
        let now = self.clock.seconds();
        let valid = self.identity.as_ref().is_some_and(|id| id.is_valid(now));
        if !valid || self.certificate_refused {
            self.look_at_ca();
            self.show_measured();
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
        let theirs = by_the_gateway(now, self.status.clock_skew_ms);
        let due = self.identity.as_ref().is_some_and(|id| theirs >= id.renew_at());
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
        self.show_measured();
        let csr = Csr::generate(self.registration.node_id.as_str()).map_err(|e| e.to_string())?;
        let body = json(&CertificateRequest { csr: csr.pem.clone() })?;
        let path = certificate_path(&self.registration.node_id);
        let answer = self.client.post(&path, body).await.map_err(|e| e.to_string())?;
        let response: CertificateResponse = read(&answer).map_err(|e| e.to_string())?;
        let shown = self.client.shown();
        self.take_certificate(&response, &csr.key_pem, Arc::clone(&self.key), shown.as_deref())?;
        tracing::info!("client certificate renewed");
        Ok(())
    }

    /// `key` is the one that the certificate was asked for with, `shown` what has vouched for the answer.
    pub(super) fn take_certificate(
        &mut self,
        response: &CertificateResponse,
        key_pem: &Zeroizing<String>,
        key: SharedSigner,
        shown: Option<&Shown>,
    ) -> Result<(), String> {
        let path = self.state.renewed_identity();
        let identity =
            Identity::from_pem(&path, &response.certificate, key_pem).map_err(|e| e.to_string())?;
        let before = self.anchors();
        let mut anchors = before.after(&certificates(&response.ca), shown, &self.clock);
        let r = &self.registration;
        let ours = (&r.cluster_id, &r.node_id);
        // By a CA that was trusted before: who has but the gateway's key to TLS cannot make nodes its own.
        let vouching = Trust {
            known: Arc::clone(&anchors.known),
            ..before
        };
        check_issued(&identity, &vouching.certificates(), ours, self.clock.seconds())
            .map_err(|e| e.to_string())?;
        let pinned_before = r.ca_sha256;
        // The registration first: a certificate of an epoch that is not on record is asked for again.
        match identity.epoch() {
            Some(epoch) if epoch > r.epoch || key.public() != r.public_key => self.adopt(key, epoch)?,
            None if key.public() != r.public_key => return Err("the certificate names no epoch".into()),
            _ => {}
        }
        // Another process may have registered: what its token pins counts as well.
        if self.registration.ca_sha256 != pinned_before {
            let pins = self.registration.pins();
            let others = pins.into_iter().filter(|p| !anchors.pins.contains(p));
            let others: Vec<CaPin> = others.collect();
            anchors.pins.extend(others);
        }
        self.trust(anchors);
        // Certificate and key in one file: they cannot come apart in a crash.
        let both = Zeroizing::new(format!(
            "{}\n{}",
            response.certificate.trim_end(),
            key_pem.as_str()
        ));
        // It serves at once; the disk may take its time.
        self.keeper.certificate(both);
        self.look_at_ca();
        let tls =
            tls(&self.known, &self.registration, Some(&identity), &self.clock).map_err(|e| e.to_string())?;
        self.client.set_tls(tls);
        self.identity = Some(identity);
        self.issued_life = None;
        if self.doubt.ends() {
            // By the clock of this gateway ours is right; its answer to the next heartbeat says by how much.
            self.status.clock_skew_ms = None;
        }
        self.renew_backoff.reset();
        self.note_certificate();
        Ok(())
    }

    /// One that lies on the disk counts from now on.
    pub(super) fn take_found(&mut self, found: Identity) {
        // Of another registration by now.
        if found
            .epoch()
            .is_some_and(|epoch| epoch != self.registration.epoch)
        {
            return;
        }
        match tls(&self.known, &self.registration, Some(&found), &self.clock) {
            Ok(tls) => self.client.set_tls(tls),
            Err(e) => return tracing::error!("{e}"),
        }
        self.identity = Some(found);
        self.doubt.ends();
        self.note_certificate();
    }

    /// The CAs that are trusted.
    pub(super) fn anchors(&self) -> Trust {
        Trust {
            pins: self.registration.pins(),
            known: Arc::clone(&self.known),
        }
    }

    /// Has these written into the CA file. One outside of the state directory is the operator's, and stays as it is.
    pub(super) fn keep_trusted(&self, anchors: &Trust) {
        if self.state.holds(&self.config.tls.ca_cert) {
            self.keeper.ca(&self.config.tls.ca_cert, anchors.pem());
        }
    }

    /// Trusts these from here on.
    fn trust(&mut self, anchors: Trust) {
        if anchors.certificates() != self.anchors().certificates() {
            self.keep_trusted(&anchors);
        }
        if anchors.pins != self.registration.pins() {
            let pins: Vec<String> = anchors.pins.iter().map(ToString::to_string).collect();
            tracing::info!(
                ca_sha256 = pins.join(" "),
                "the gateway has named the CAs that are trusted from here on"
            );
            self.registration.trusted = anchors.pins;
            self.keep_registration();
        }
        self.known = anchors.known;
    }

    /// Has the CA file read again, by the thread that may wait for its disk; until then what it held before counts.
    fn look_at_ca(&mut self) {
        self.keeper.look_at_ca(&self.config.tls.ca_cert);
        self.sampler.attend();
    }

    /// The CA file as it was read just now.
    pub(super) fn take_known(&mut self, known: &Known) {
        let known = self.anchors().with_file(known);
        if known == self.known {
            return;
        }
        self.known = known;
        match tls(
            &self.known,
            &self.registration,
            self.identity.as_ref(),
            &self.clock,
        ) {
            Ok(tls) => self.client.set_tls(tls),
            Err(e) => return tracing::error!("{e}"),
        }
        tracing::info!("provider_daemon.tls.ca_cert has changed and is in use");
    }

    pub(super) fn note_certificate(&mut self) {
        self.status.certificate = self.identity.as_ref().map(|id| CertificateStatus {
            path: id.path().display().to_string(),
            not_after: id.not_after(),
            renew_at: id.renew_at(),
        });
    }
}

/// The gateway's time, by which certificates are made, as far as is known: by ours, where that is ahead, each new one could be
/// due as soon as it is there. Clocks that agree are one.
fn by_the_gateway(now: u64, skew_ms: Option<i64>) -> u64 {
    let apart = skew_ms.filter(|ms| ms.unsigned_abs() > SKEW_MS).unwrap_or(0);
    now.saturating_add_signed(apart / 1000)
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_s_time_is_ours_and_what_it_is_known_to_be_off() {
        assert_eq!(by_the_gateway(1_000_000, None), 1_000_000);
        assert_eq!(by_the_gateway(1_000_000, Some(-72_000_000)), 928_000);
        assert_eq!(by_the_gateway(1_000_000, Some(90_500)), 1_000_090);
        assert_eq!(by_the_gateway(1, Some(i64::MIN)), 0);
        for agree in [-10_000, -5, 0, 900, 10_000] {
            assert_eq!(by_the_gateway(1_000_000, Some(agree)), 1_000_000);
        }
    }
}
