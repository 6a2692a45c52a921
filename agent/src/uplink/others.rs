//! Which of several gateways is spoken to: the next one where one fails, the preferred one once it answers again.

use std::sync::Arc;

use rustls::ClientConfig;

use super::connect::connect;
use super::{Answer, Client, UplinkError};
use crate::clock::instant;

impl Client {
    /// Whether there is another gateway.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.endpoints.len() > 1
    }

    /// Moves on to the next gateway, if there is one.
    pub fn fail_over(&mut self) {
        let next = self
            .current
            .saturating_add(1)
            .checked_rem(self.endpoints.len())
            .unwrap_or(0);
        self.connection = None;
        self.move_to(next);
    }

    /// Moves on to the next gateway where this one has not answered, or is in trouble of its own (5xx): another need not be,
    /// and is asked without the pause that this one wished for.
    ///
    /// # Errors
    /// The one that it was given.
    pub fn judged(&mut self, answer: Result<Answer, UplinkError>) -> Result<Answer, UplinkError> {
        match answer {
            Ok(answer) if answer.status >= 500 && self.has_others() => {
                self.fail_over();
                Ok(Answer {
                    retry_after: None,
                    ..answer
                })
            }
            Ok(answer) => Ok(answer),
            Err(e) => {
                self.fail_over();
                Err(e)
            }
        }
    }

    /// Another client of the same gateways, which begins with the one in use; `tls` is what it trusts and shows.
    #[must_use]
    pub fn beside(&self, tls: Arc<ClientConfig>) -> Self {
        let mut other = Self::new(self.endpoints.clone(), tls, self.limit).dialing(self.dial.clone());
        other.current = self.current;
        other
    }

    /// Goes on with the gateway to which a client made by [`Client::beside`] has come.
    pub fn follow(&mut self, other: &Self) {
        if other.current != self.current && other.endpoints == self.endpoints {
            self.connection = None;
            self.move_to(other.current);
        }
    }

    fn move_to(&mut self, gateway: usize) {
        if let Some(fail_back) = self.fail_back.as_mut().filter(|_| self.current == 0) {
            fail_back.left(instant());
        }
        self.current = gateway;
    }

    /// Takes the preferred gateway into use if the last look found it; looks again if it is time.
    pub(super) async fn go_back(&mut self) {
        let Some(fail_back) = self.fail_back.as_mut().filter(|_| self.current > 0) else {
            return;
        };
        if let Some(connection) = fail_back.found(instant()).await {
            self.connection = Some(connection);
            self.current = 0;
            tracing::info!(gateway = %self.endpoint(), "the preferred gateway answers again");
        } else if let Some(endpoint) = self.endpoints.first().cloned()
            && fail_back.is_due(instant())
        {
            let (dial, tls, limit) = (self.dial.clone(), Arc::clone(&self.tls), self.limit);
            fail_back.looking(tokio::spawn(async move {
                connect(&dial, &endpoint, &tls, limit).await.ok()
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::config::{parse, resolve};
    use crate::uplink::{Dial, Dialing, Stream, Trust, client_config};

    fn client(endpoints: &str) -> Client {
        let text = format!("provider_daemon: {{endpoints: [{endpoints}], request_timeout: 5s}}");
        let config = resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap();
        let trust = Trust::new(Vec::new(), Path::new("/nowhere/ca.crt"));
        let tls = client_config(trust, None, &Clock::system()).unwrap();
        Client::new(config.endpoints, tls, config.request_timeout)
    }

    fn answer(status: u16) -> Answer {
        Answer {
            status,
            retry_after: Some(Duration::from_secs(30)),
            body: Vec::new(),
            date: None,
            latency: Duration::ZERO,
        }
    }

    #[test]
    fn another_gateway_is_asked_at_once_and_a_single_one_when_it_says() {
        let mut two = client("'https://a:1', 'https://b:2'");
        assert!(two.judged(Ok(answer(429))).unwrap().retry_after.is_some());
        assert_eq!(two.endpoint(), "https://a:1");
        assert!(two.judged(Ok(answer(503))).unwrap().retry_after.is_none());
        assert_eq!(two.endpoint(), "https://b:2");
        let mut other = two.beside(Arc::clone(&two.tls));
        assert_eq!(other.endpoint(), "https://b:2");
        let lost = UplinkError::Broken {
            endpoint: String::new(),
            message: String::new(),
        };
        other.judged(Err(lost)).unwrap_err();
        two.follow(&other);
        assert_eq!(two.endpoint(), "https://a:1");
        let mut one = client("'https://a:1'");
        assert!(one.judged(Ok(answer(503))).unwrap().retry_after.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_third_gateway_is_reached_though_two_swallow_every_packet() {
        let dialled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&dialled);
        let dial = Dial::new(move |endpoint| -> Dialing {
            seen.lock().unwrap().push(endpoint.port);
            Box::pin(async move {
                if endpoint.port < 3 {
                    std::future::pending::<()>().await;
                }
                Err::<Box<dyn Stream>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
            })
        });
        let mut client = client("'https://a:1', 'https://b:2', 'https://c:3'").dialing(dial);
        let e = client.post("/", Vec::new()).await.unwrap_err();
        assert!(matches!(e, UplinkError::Connect { .. }), "{e}");
        assert_eq!(*dialled.lock().unwrap(), [1, 2, 3]);
    }
}
