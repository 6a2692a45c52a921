//! A certificate by the agent's key, when the one in use has expired, was refused or belongs to a registration that has
//! been replaced. Protocol decision 4.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Agent;
use super::identity::tls;
use crate::key::{SharedSigner, others};
use crate::register::{LIFE, RecoverError, recover};
use crate::uplink::Identity;

/// How long keys are looked for: devices take their time, and a file system may hang.
const PATIENCE: Duration = Duration::from_secs(60);

impl Agent {
    /// With the key in use, else with another one on the disk: a rotation or a new registration by another process may
    /// have made it the one that counts.
    pub(super) async fn recover(&mut self) -> Result<(), RecoverError> {
        let present = Arc::clone(&self.key);
        let refused = match self.recover_with(&present).await {
            Err(e) if e.is_other_key() => e,
            other => return other,
        };
        // One that came back too late has looked with what counted then.
        self.other_keys.take_if(|look| look.is_finished());
        let (path, known) = (self.config.key_path.clone(), present.public());
        // One look at a time: the threads that could hang in it resolve names too.
        let look = self
            .other_keys
            .get_or_insert_with(|| tokio::task::spawn_blocking(move || others(&path, &known)));
        let Ok(keys) = timeout(PATIENCE, look).await else {
            tracing::warn!("the folder of agent.key_path has not answered within {PATIENCE:?}");
            return Err(refused);
        };
        self.other_keys = None;
        for key in keys.unwrap_or_default() {
            match self.recover_with(&key).await {
                Err(e) if e.is_other_key() => {}
                other => return other,
            }
        }
        Err(refused)
    }

    async fn recover_with(&mut self, key: &SharedSigner) -> Result<(), RecoverError> {
        let tls = tls(&self.known, &self.registration, None, &self.clock)
            .map_err(|e| RecoverError::Failed(e.to_string()))?;
        let mut client = self.client.beside(tls);
        let of_last = self.identity.as_ref().map(Identity::life);
        let mut life = self.issued_life.or(of_last).unwrap_or(LIFE);
        let node = &self.registration.node_id;
        let recovered = recover(&mut client, node, &**key, (&self.clock, &mut life)).await;
        // The next try, and the heartbeat after it, go where this one has come to.
        self.client.follow(&client);
        if let Err(RecoverError::Clock(ahead)) = &recovered {
            self.issued_life = Some(life);
            if self.doubt.says(ahead.gateway(), self.client.has_others()) {
                self.status.clock_skew_ms = Some(ahead.skew_ms());
            }
        }
        let (response, key_pem) = recovered?;
        let shown = client.shown();
        self.take_certificate(&response, &key_pem, Arc::clone(key), shown.as_deref())
            .map_err(RecoverError::Failed)?;
        tracing::info!("client certificate recovered with the agent's key");
        Ok(())
    }
}
