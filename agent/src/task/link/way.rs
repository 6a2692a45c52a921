use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::identity::Identities;
use crate::config::Config;
use crate::uplink::{Answer, Backoff, Client, UplinkError};

/// The way to the gateway: one connection, made with the newest certificate when it is needed.
pub(super) struct Way {
    client: Option<Client>,
    /// The client's trust and certificate may be of a former registration or CA.
    outdated: bool,
    config: Config,
    identities: Arc<Mutex<Identities>>,
}

impl Way {
    pub(super) fn new(config: &Config, identities: Arc<Mutex<Identities>>) -> Self {
        Self {
            client: None,
            outdated: false,
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
            Some(client) if !self.outdated => client,
            former => {
                let tls = self.identities.lock().await.tls();
                let tls = tls.map_err(|e| UplinkError::Connect {
                    endpoint: String::new(),
                    message: e.to_string(),
                })?;
                self.outdated = false;
                match former {
                    // The gateway in use stays: another may have failed.
                    Some(mut client) => {
                        client.set_tls(tls);
                        client
                    }
                    None => Client::new(self.config.endpoints.clone(), tls, self.config.request_timeout),
                }
            }
        };
        Ok(self.client.insert(client))
    }

    /// A gateway that fails is followed by the next; one that refuses the certificate, by a newer one: the heartbeat sees
    /// to it. Where TLS fails otherwise the gateway's CA may have changed: trust is read anew, too.
    fn judge(&mut self, answer: Result<Answer, UplinkError>) -> Result<Answer, UplinkError> {
        let refused = match &answer {
            Ok(answer) => matches!(answer.status, 401 | 403),
            Err(e) => e.certificate_refused(),
        };
        if refused {
            self.client = None;
        } else if let (Err(e), Some(client)) = (&answer, &mut self.client) {
            self.outdated |= matches!(e, UplinkError::Tls { .. });
            client.fail_over();
        }
        answer
    }
}
