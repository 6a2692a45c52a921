use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::identity::Identities;
use crate::config::Config;
use crate::uplink::{Answer, Backoff, Client, UplinkError};

/// The way to the gateway: one connection, made with the newest certificate when it is needed.
pub(super) struct Way {
    client: Option<Client>,
    config: Config,
    identities: Arc<Mutex<Identities>>,
}

impl Way {
    pub(super) fn new(config: &Config, identities: Arc<Mutex<Identities>>) -> Self {
        Self {
            client: None,
            config: config.clone(),
            identities,
        }
    }

    /// Pauses between attempts.
    pub(super) fn backoff() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(30))
    }

    /// Gets what may take the gateway up to `wait` to have.
    pub(super) async fn get(&mut self, path: &str, wait: Duration) -> Result<Answer, UplinkError> {
        let answer = self.client().await?.get(path, wait).await;
        self.judge(answer)
    }

    pub(super) async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<Answer, UplinkError> {
        let answer = self.client().await?.post(path, body).await;
        self.judge(answer)
    }

    async fn client(&mut self) -> Result<&mut Client, UplinkError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let tls = self.identities.lock().await.tls();
                let tls = tls.map_err(|e| UplinkError::Connect {
                    endpoint: String::new(),
                    message: e.to_string(),
                })?;
                Client::new(self.config.endpoints.clone(), tls, self.config.request_timeout)
            }
        };
        Ok(self.client.insert(client))
    }

    /// A gateway that fails is followed by the next; one that refuses the certificate, by a newer one: the heartbeat sees
    /// to it.
    fn judge(&mut self, answer: Result<Answer, UplinkError>) -> Result<Answer, UplinkError> {
        let refused = match &answer {
            Ok(answer) => matches!(answer.status, 401 | 403),
            Err(e) => e.certificate_refused(),
        };
        if refused {
            self.client = None;
        } else if let (Err(_), Some(client)) = (&answer, &mut self.client) {
            client.fail_over();
        }
        answer
    }
}
