//! A node that has lost its disk and kept its key: what is on record of it comes with the certificate that the key
//! recovers. Protocol decision 5.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::gateway::{CertificateResponse, RegistrationRecord};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use zeroize::Zeroizing;

use super::RegisterError;
use super::claims::Claims;
use super::clock::LIFE;
use super::recover::recover;
use crate::clock::{Clock, instant};
use crate::config::Config;
use crate::files::{Durability, Replace, create_directory, directory_of, write};
use crate::key::Signer;
use crate::probe::fingerprint::{self, Fingerprint};
use crate::random;
use crate::sequence::BLOCK;
use crate::state::{Registration, StateDir};
use crate::uplink::{
    Backoff, CaPin, Client, Dial, Identity, MOST_CAS, Shown, Trust, certificates, check_issued,
    client_config, is_ca, read_known, to_pem,
};

/// Who this node is, by a token that is used up, or by the configuration alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    node_id: NodeId,
    cluster_id: ClusterId,
    ca: CaPin,
    /// Beside it, where a file names the CAs.
    other_cas: Vec<CaPin>,
    /// Chain and contract, where a token pins them.
    chain: Option<(String, String)>,
    task_key: Option<AgentKey>,
    jti: String,
}

impl From<&Claims> for Lost {
    fn from(claims: &Claims) -> Self {
        Self {
            node_id: claims.node_id.clone(),
            cluster_id: claims.cluster_id.clone(),
            ca: claims.ca,
            other_cas: Vec::new(),
            chain: Some((claims.chain_id.clone(), claims.contract.clone())),
            task_key: claims.task_key,
            jti: claims.jti.clone(),
        }
    }
}

impl Lost {
    /// By `node.id`, `node.cluster_id` and the CAs in `provider_daemon.tls.ca_cert`, as an image may hold them: the gateway's,
    /// and the one to come beside it while it changes.
    ///
    /// # Errors
    /// Something of that is missing.
    pub(super) fn of(config: &Config) -> Result<Self, RegisterError> {
        let missing = || RegisterError::no_token(config);
        let (Some(node_id), Some(cluster_id)) = (&config.node_id, &config.cluster_id) else {
            return Err(missing());
        };
        let known = read_known(&config.tls.ca_cert).ok_or_else(missing)?;
        let cas: Vec<CaPin> = known.iter().filter(|c| is_ca(c)).map(CaPin::of).collect();
        match cas.split_first() {
            Some((ca, others)) if cas.len() <= MOST_CAS => Ok(Self {
                node_id: node_id.clone(),
                cluster_id: cluster_id.clone(),
                ca: *ca,
                other_cas: others.to_vec(),
                chain: None,
                task_key: None,
                jti: String::new(),
            }),
            _ if config.token_file_missing.is_some() => Err(missing()),
            _ => Err(RegisterError::NoCa {
                path: config.tls.ca_cert.display().to_string(),
                held: cas.len(),
            }),
        }
    }

    /// Whom it trusts so far.
    fn trust(&self, config: &Config) -> Trust {
        let pins = std::iter::once(self.ca).chain(self.other_cas.iter().copied());
        Trust::new(pins.collect(), &config.tls.ca_cert)
    }

    /// Asks until there is an answer, at most for `wait`. What it writes lies in the state directory: the rest of such a
    /// node's disk is an image.
    pub(super) async fn recover(
        &self,
        config: &Config,
        key: &dyn Signer,
        wait: Option<Duration>,
        (clock, dial): (&Clock, &Dial),
        progress: &mut impl FnMut(&str),
    ) -> Result<Registration, RegisterError> {
        let trust = self.trust(config);
        let tls = client_config(trust.clone(), None, clock)?;
        let mut client =
            Client::new(config.endpoints.clone(), tls, config.request_timeout).dialing(dial.clone());
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let start = instant();
        let mut life = LIFE;
        let (response, tls_key) = loop {
            let e = match recover(&mut client, &self.node_id, key, (clock, &mut life)).await {
                Ok(answer) => break answer,
                Err(e) => e,
            };
            if !e.is_transient() {
                return Err(RegisterError::NotRecovered {
                    stranger: e.is_stranger(),
                    code: e.code().to_owned(),
                    message: e.to_string(),
                });
            }
            let reason = format!("recovering the registration by the agent's key: {e}");
            progress(&reason);
            let pause = backoff.next(random::up_to);
            if let Some(wait) = wait
                && instant().saturating_duration_since(start).saturating_add(pause) > wait
            {
                return Err(RegisterError::TimedOut {
                    waited: wait,
                    last: reason,
                });
            }
            tokio::time::sleep(pause).await;
        };
        let shown = client.shown();
        let told = (&response, &tls_key, shown.as_deref());
        self.install(config, key, told, trust, clock)
    }

    /// Takes over what the gateway has told over a connection for which one of the CAs in `before` has vouched.
    fn install(
        &self,
        config: &Config,
        key: &dyn Signer,
        (response, tls_key, shown): (&CertificateResponse, &Zeroizing<String>, Option<&Shown>),
        before: Trust,
        clock: &Clock,
    ) -> Result<Registration, RegisterError> {
        let now = clock.seconds();
        let bad = |what: &str| RegisterError::BadAnswer(what.to_owned());
        let record = response.registration.as_ref().ok_or_else(|| {
            bad("it does not say what is on record of the node: upgrade the provider daemon")
        })?;
        if (&record.node_id, &record.cluster_id) != (&self.node_id, &self.cluster_id) {
            return Err(bad("it is of another node"));
        }
        let other =
            |(chain, contract): &(String, String)| (chain, contract) != (&record.chain_id, &record.contract);
        if self.chain.as_ref().is_some_and(other) {
            return Err(bad("it names another chain or contract than the token"));
        }
        let state = StateDir::new(&config.state_dir);
        let path = state.renewed_identity();
        let identity = Identity::from_pem(&path, &response.certificate, tls_key)?;
        let ours = (&self.cluster_id, &self.node_id);
        let held = before.certificates();
        let trust = before.after(&certificates(&response.ca), shown, clock);
        // By a CA that was trusted before.
        let vouching = Trust {
            known: Arc::clone(&trust.known),
            ..before
        };
        check_issued(&identity, &vouching.certificates(), ours, now)?;
        if identity.epoch() != Some(record.epoch) {
            return Err(bad("certificate and record are of different registrations"));
        }
        let mut registration = self.registration(record, key.public(), fingerprint::read(&config.roots), now);
        registration.trusted.clone_from(&trust.pins);
        state.create()?;
        // The registration comes last. Cut off before it, the next start recovers once more, by whom it trusted before: these
        // stay beside. A file that holds all may be one that cannot be written.
        let ca_file = &config.tls.ca_cert;
        let cas = trust.with_file(&held);
        if state.holds(ca_file) && cas.iter().any(|c| !held.contains(c)) {
            let put = create_directory(directory_of(ca_file)).and_then(|()| {
                write(
                    ca_file,
                    to_pem(&cas).as_bytes(),
                    0o644,
                    Replace::Yes,
                    Durability::Synced,
                )
            });
            // The next renewal tries again.
            if let Err(e) = put {
                tracing::warn!("the gateway's CAs are not kept yet: {e}");
            }
        }
        let both = Zeroizing::new(format!(
            "{}\n{}",
            response.certificate.trim_end(),
            tls_key.as_str()
        ));
        write(&path, both.as_bytes(), 0o600, Replace::Yes, Durability::Synced)?;
        registration.save(&state)?;
        Ok(registration)
    }

    fn registration(
        &self,
        record: &RegistrationRecord,
        public_key: AgentKey,
        now_here: Option<Fingerprint>,
        now: u64,
    ) -> Registration {
        let fingerprint = registered(record.hardware_fingerprint.as_deref(), now_here);
        Registration {
            node_id: record.node_id.clone(),
            cluster_id: record.cluster_id.clone(),
            provider_address: record.provider_address.clone(),
            chain_id: record.chain_id.clone(),
            contract: record.contract.clone(),
            epoch: record.epoch,
            // Some may have been signed and not have arrived yet.
            last_sequence: record.last_sequence.saturating_add(BLOCK),
            params: record.params.clone(),
            job_ids: record.job_ids,
            // What the token pins holds.
            task_public_key: self.task_key.or(record.task_public_key),
            public_key,
            jti: self.jti.clone(),
            ca_sha256: self.ca,
            trusted: Vec::new(),
            fingerprint,
            // Nothing says what the gateway was told.
            probe_port: None,
            probe_address: None,
            registered_at: now,
        }
    }
}

/// The fingerprint that is on record. What it was made of is lost, unless it is what is here: another one, or none yet, may
/// be another machine.
fn registered(value: Option<&str>, now_here: Option<Fingerprint>) -> Option<Fingerprint> {
    match (value, now_here) {
        (Some(value), Some(here)) if value == here.value => Some(here),
        (Some(value), _) => Some(Fingerprint {
            value: value.to_owned(),
            sources: BTreeMap::new(),
        }),
        (None, here) => here,
    }
}

/// The token is used up, or the node is on record and lives: perhaps it was this one, before it lost its disk.
pub(super) fn is_spent(e: &RegisterError) -> bool {
    [Code::TokenUsed, Code::TokenExpired, Code::NodeExists]
        .into_iter()
        .any(|code| e.is_refusal(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_on_record_is_kept_whatever_is_here() {
        let here = Fingerprint {
            value: "aa".to_owned(),
            sources: BTreeMap::from([("mac.1".to_owned(), "1".to_owned())]),
        };
        let value_alone = |value: &str| Fingerprint {
            value: value.to_owned(),
            sources: BTreeMap::new(),
        };
        assert_eq!(registered(Some("aa"), Some(here.clone())), Some(here.clone()));
        assert_eq!(
            registered(Some("bb"), Some(here.clone())),
            Some(value_alone("bb"))
        );
        assert_eq!(registered(Some("aa"), None), Some(value_alone("aa")));
        assert_eq!(registered(None, Some(here.clone())), Some(here));
        assert_eq!(registered(None, None), None);
    }
}
