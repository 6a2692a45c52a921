use std::sync::Arc;

use hpc_schema::id::NodeId;
use rustls::ClientConfig;

use super::LinkError;
use crate::clock::Clock;
use crate::config::Config;
use crate::run::identity;
use crate::state::{Registration, StateDir};
use crate::uplink::{TlsError, read_known};

/// This node's certificate, which the heartbeat renews: read anew when it does not serve any more.
#[derive(Debug)]
pub(super) struct Identities {
    config: Config,
    clock: Clock,
    registration: Registration,
}

impl Identities {
    pub(super) fn load(config: &Config, clock: &Clock) -> Result<Self, LinkError> {
        let state = StateDir::new(&config.state_dir);
        let registration = Registration::load(&state)?.ok_or(LinkError::NotRegistered)?;
        Ok(Self {
            config: config.clone(),
            clock: clock.clone(),
            registration,
        })
    }

    pub(super) fn node_id(&self) -> &NodeId {
        &self.registration.node_id
    }

    /// TLS with the newest certificate.
    pub(super) fn tls(&mut self) -> Result<Arc<ClientConfig>, TlsError> {
        let state = StateDir::new(&self.config.state_dir);
        // A new registration of the same node has another epoch and may pin another CA.
        match Registration::load(&state) {
            Ok(Some(fresh)) if fresh.node_id == self.registration.node_id => self.registration = fresh,
            Ok(_) => {}
            Err(e) => tracing::warn!("{e}"),
        }
        let identity = identity::best(&self.config, &state, &self.registration);
        let known = read_known(&self.config.tls.ca_cert).unwrap_or_default();
        identity::tls(&known, &self.registration, identity.as_ref(), &self.clock)
    }
}
