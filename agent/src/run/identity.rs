//! Who this node is: its newest certificate, and TLS with it.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::clock::Clock;
use crate::config::Config;
use crate::state::{Registration, StateDir};
use crate::uplink::{Identity, Known, TlsError, Trust, client_config, newest};

/// Where a certificate of this node may lie, and whose it must be.
pub(super) struct Places {
    pub(super) config: Config,
    pub(super) state: StateDir,
    pub(super) registration: Registration,
}

impl Places {
    /// The one that counts.
    pub(super) fn find(self) -> Option<Identity> {
        best(&self.config, &self.state, &self.registration)
    }
}

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

/// TLS that trusts the CAs of the registration; `known` is what the CA file held, and what answers have brought. Reads
/// nothing.
pub(crate) fn tls(
    known: &Known,
    registration: &Registration,
    identity: Option<&Identity>,
    clock: &Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let trust = Trust {
        pins: registration.pins(),
        known: Arc::clone(known),
    };
    client_config(trust, identity, clock)
}
