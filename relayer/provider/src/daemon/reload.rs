use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use super::open::StartError;
use crate::clock;
use crate::gateway::{Gateway, ServerCertificate, Tls, check_server, server_config};
use crate::home::{self, Home};
use crate::identity::Anchors;
use crate::ops::Health;

/// Takes changed certificates into use while connections are open: all of them, or none.
#[derive(Debug, Clone)]
pub(super) struct Reload {
    pub(super) home: Home,
    pub(super) gateway: Weak<Gateway>,
    pub(super) tls: Arc<Tls>,
    pub(super) certificate: Arc<ServerCertificate>,
    pub(super) health: Arc<Health>,
}

impl Reload {
    /// Reads the CA, those trusted beside it and the gateway's certificate anew; checks them as an agent would, then publishes them.
    ///
    /// # Errors
    /// Names the file; everything stays as it was.
    pub(super) fn run(&self) -> Result<(), StartError> {
        let done = self.publish();
        match &done {
            Ok(()) => {
                self.health.clear("reload_failed");
                tracing::info!("certificates read anew");
            }
            Err(e) => self
                .health
                .raise("reload_failed", format!("{e}; what was in use stays in use")),
        }
        done
    }

    fn publish(&self) -> Result<(), StartError> {
        let Some(gateway) = self.gateway.upgrade() else {
            return Ok(());
        };
        let now = clock::now();
        let ca = super::open::load_ca(&self.home)?;
        let anchors = Anchors::load(&ca, &self.home.trusted_cas(), now)?;
        let file = |path: PathBuf| move |source| StartError::File { path, source };
        let chain = fs::read_to_string(self.home.server_cert()).map_err(file(self.home.server_cert()))?;
        let key = home::read_secret(&self.home.server_key()).map_err(file(self.home.server_key()))?;
        check_server(&chain, &key, &anchors, &gateway.config.gateway.names, now)?;
        let config = server_config(&anchors, Arc::clone(&self.certificate))?;
        self.certificate.replace(&chain, &key)?;
        self.tls.replace(config);
        gateway.set_trust(ca, anchors);
        Ok(())
    }
}
