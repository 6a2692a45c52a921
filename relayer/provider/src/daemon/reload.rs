use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use hpc_chain::rpc::Endpoints;
use serde_json::json;

use super::error::StartError;
use crate::admin::Act;
use crate::audit::Actor;
use crate::clock;
use crate::config::{Change, Config, Live};
use crate::gateway::{Gateway, ServerCertificate, Tls, check_server, server_config};
use crate::home::{self, Home};
use crate::identity::{Anchors, Verifying};
use crate::ops::Health;
use crate::store::Store;

/// Reads the configuration again; the error is for people.
pub type Reread = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Takes changed certificates and a changed configuration into use while connections are open: all of it, or nothing.
#[derive(Clone)]
pub(super) struct Reload {
    pub(super) home: Home,
    pub(super) gateway: Weak<Gateway>,
    pub(super) tls: Arc<Tls>,
    pub(super) certificate: Arc<ServerCertificate>,
    pub(super) health: Arc<Health>,
    pub(super) store: Store,
    pub(super) live: Live,
    pub(super) reread: Option<Reread>,
    pub(super) endpoints: Endpoints,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Reload {
    /// Reads the configuration, the CA, those trusted beside it, the gateway's certificate and the token keys anew; checks the
    /// certificate as an agent would, then publishes all.
    ///
    /// # Errors
    /// Names the file or key; everything stays as it was.
    pub(super) async fn run(&self) -> Result<(), StartError> {
        match self.publish() {
            Ok(change) => {
                self.health.clear("reload_failed");
                self.tell(&change).await;
                Ok(())
            }
            Err(e) => {
                self.health
                    .raise("reload_failed", format!("{e}; what was in use stays in use"));
                Err(e)
            }
        }
    }

    async fn tell(&self, change: &Change) {
        for key in &change.waiting {
            tracing::warn!("{key} has changed; it takes effect at the next start");
        }
        tracing::info!(
            changed = change.changed.join(" "),
            "certificates and configuration read anew"
        );
        if change.changed.is_empty() {
            return;
        }
        let what = ("config.change", "config.yaml".to_owned());
        let detail = json!({ "keys": change.changed });
        if let Err(error) = Act::note(&self.store, &Actor::daemon(), what, "done", detail).await {
            tracing::error!(%error, "the change of configuration is not in the audit log");
        }
    }

    fn publish(&self) -> Result<Change, StartError> {
        let next = match &self.reread {
            Some(reread) => Some(reread().map_err(StartError::Reload)?),
            None => None,
        };
        // An address that is none refuses all, before anything has changed.
        let endpoints = match &next {
            Some(next) => Some(
                self.endpoints
                    .prepare(&next.chain.rpc)
                    .map_err(|e| StartError::Value {
                        key: "chain.rpc",
                        message: e.to_string(),
                    })?,
            ),
            None => None,
        };
        self.publish_certificates()?;
        match next {
            Some(next) => {
                let change = self.live.update(&next)?;
                if let Some(endpoints) = endpoints.filter(|_| change.changed.iter().any(|k| k == "chain.rpc"))
                {
                    self.endpoints.replace(endpoints);
                }
                if let Some(gateway) = self.gateway.upgrade() {
                    gateway.retune();
                }
                Ok(change)
            }
            None => Ok(Change::default()),
        }
    }

    fn publish_certificates(&self) -> Result<(), StartError> {
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
        let tokens = Verifying::load(&self.home)?;
        let config = server_config(&anchors, Arc::clone(&self.certificate))?;
        self.certificate.replace(&chain, &key)?;
        self.tls.replace(config);
        gateway.set_trust(ca, anchors);
        gateway.tokens.replace(tokens);
        Ok(())
    }
}
