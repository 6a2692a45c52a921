use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hpc_chain::rpc::Endpoints;
use serde_json::json;

use super::error::StartError;
use super::open;
use super::renew::renew;
use crate::admin::Act;
use crate::audit::Actor;
use crate::clock;
use crate::config::{Change, Config, Live};
use crate::gateway::{Gateway, ServerCertificate, Tls, check_server, client_verifier, server_config};
use crate::home::Home;
use crate::identity::{Anchors, Verifying};
use crate::ops::Health;
use crate::store::Store;

/// What the trouble of token keys is said of.
const TOKEN_KEYS: &str = "token keys";

/// Reads the configuration again; the error is for people.
pub type Reread = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Takes changed certificates and a changed configuration into use while connections are open: all of it, or nothing. Token
/// keys are no part of it: whatever is wrong elsewhere, one that has leaked must end.
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
    /// One at a time: what was read last counts.
    pub(super) turn: Arc<Mutex<()>>,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Reload {
    /// Reads the token keys anew; then the configuration, the CA, those trusted beside it and the gateway's certificate, checks
    /// that as an agent would, and publishes all.
    ///
    /// # Errors
    /// Names the file or key; everything of its kind stays as it was.
    pub(super) async fn run(&self) -> Result<(), StartError> {
        let (tokens, rest) = self.take_all();
        self.tell(&rest?).await;
        tokens
    }

    /// Looks whether the gateway's certificate is to be issued anew, here or elsewhere.
    pub(super) fn look_at_server(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gateway) = self.gateway.upgrade() {
            renew(&self.home, &self.health, &gateway, &self.certificate);
        }
    }

    fn take_all(&self) -> (Result<(), StartError>, Result<Change, StartError>) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = self.publish_tokens();
        self.tell_failed(TOKEN_KEYS, tokens.as_ref().err());
        let rest = self.publish();
        self.tell_failed("", rest.as_ref().err());
        (tokens, rest)
    }

    fn tell_failed(&self, subject: &str, error: Option<&StartError>) {
        let message = error.map(|e| format!("{e}; what was in use stays in use"));
        self.health.set_of("reload_failed", subject, message);
    }

    fn publish_tokens(&self) -> Result<(), StartError> {
        let keys = Verifying::load(&self.home)?;
        if let Some(gateway) = self.gateway.upgrade() {
            gateway.tokens.replace(keys);
        }
        Ok(())
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
        let ca = open::load_ca(&self.home)?;
        let anchors = Anchors::load(&ca, &self.home.trusted_cas(), now)?;
        let (chain, key) = (open::read_chain(&self.home)?, open::read_server_key(&self.home)?);
        check_server(&chain, &key, &anchors, &gateway.config.gateway.names, now)?;
        let config = server_config(&anchors, Arc::clone(&self.certificate))?;
        let verifier = client_verifier(&anchors)?;
        self.certificate.replace(&chain, &key)?;
        // In this order: a connection that is shown the former configuration hears of the change.
        self.tls.replace(config);
        gateway.set_trust(ca, anchors, verifier);
        // What was wrong with the former one may be over.
        renew(&self.home, &self.health, &gateway, &self.certificate);
        Ok(())
    }
}
