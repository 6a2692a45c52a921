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

    /// A gateway that fails, or is in trouble of its own, is followed by the next; one that refuses the certificate, by a
    /// newer one: the heartbeat sees to it. Where TLS fails otherwise the gateway's CA may have changed: trust is read anew, too.
    fn judge(&mut self, answer: Result<Answer, UplinkError>) -> Result<Answer, UplinkError> {
        let refused = match &answer {
            Ok(answer) => matches!(answer.status, 401 | 403),
            Err(e) => e.certificate_refused(),
        };
        if refused {
            self.client = None;
            return answer;
        }
        self.outdated |= matches!(answer, Err(UplinkError::Tls { .. }));
        match &mut self.client {
            Some(client) => client.judged(answer),
            None => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::Clock;
    use crate::config::{parse, resolve};
    use crate::key::NodeKey;
    use crate::state::{StateDir, a_registration};

    #[tokio::test]
    async fn a_gateway_in_trouble_of_its_own_is_followed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().display();
        let text = format!(
            "provider_daemon: {{endpoints: ['https://a:1', 'https://b:2']}}\nagent: {{key_path: '{d}/agent.key', state_dir: '{d}'}}"
        );
        let config = resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap();
        let key = NodeKey::from_seed([7; 32]).unwrap().public();
        a_registration("token-1", key, 7)
            .save(&StateDir::new(dir.path()))
            .unwrap();
        let identities = Identities::load(&config, &Clock::system()).unwrap();
        let mut way = Way::new(&config, Arc::new(Mutex::new(identities)));
        way.client().await.unwrap();
        for (status, next) in [(200, "https://a:1"), (503, "https://b:2"), (404, "https://b:2")] {
            let answer = Answer {
                status,
                retry_after: None,
                body: Vec::new(),
                date: None,
                latency: Duration::ZERO,
            };
            assert_eq!(way.judge(Ok(answer)).unwrap().status, status);
            assert_eq!(way.client().await.unwrap().endpoint(), next, "{status}");
        }
    }
}
