//! One kept-alive HTTP/1.1 connection over TLS, to the first gateway that answers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::Shown;
use super::connect::{Connection, Dial, connect};
use super::error::{UplinkError, broken};
use super::failback::FailBack;
use crate::config::Endpoint;

/// Larger answers are cut off: the gateway's largest is a few kilobytes.
const MAX_ANSWER: usize = 1 << 20;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Retry-After` in seconds.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Vec<u8>,
    /// `Date`: the gateway's clock, in UNIX seconds.
    pub date: Option<u64>,
    /// From the first byte sent to the answer's head.
    pub latency: Duration,
}

/// What is shown of a body.
const SHOWN: usize = 1024;

impl Answer {
    /// The start of the body on one line, for messages and the log.
    #[must_use]
    pub fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        text.chars().map(clean).take(SHOWN).collect()
    }
}

/// A client with one connection. Requests are made one after the other.
pub struct Client {
    pub(super) endpoints: Vec<Endpoint>,
    /// What each is called: it stands in each request.
    names: Vec<String>,
    /// The endpoint in use, or to be tried first.
    pub(super) current: usize,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) limit: Duration,
    pub(super) dial: Dial,
    pub(super) connection: Option<Connection>,
    pub(super) fail_back: Option<FailBack>,
}

impl Client {
    /// Nothing is connected before the first request.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self {
            names: names(&endpoints),
            endpoints,
            current: 0,
            tls,
            limit,
            dial: Dial::tcp(),
            connection: None,
            fail_back: None,
        }
    }

    /// Goes back to the first gateway once it answers again, at the earliest so long after it failed.
    #[must_use]
    pub fn failing_back(self, after: Duration) -> Self {
        Self {
            fail_back: Some(FailBack::new(after)),
            ..self
        }
    }

    /// What the gateway in use has shown when it was connected to; none: there is no connection.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<Shown>> {
        self.connection.as_ref().map(|c| Arc::clone(&c.shown))
    }

    /// Reaches gateways another way.
    #[must_use]
    pub fn dialing(self, dial: Dial) -> Self {
        Self { dial, ..self }
    }

    /// The gateway in use.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.names.get(self.current).map_or("", String::as_str)
    }

    /// Takes another certificate or trust into use; the next request connects anew.
    pub fn set_tls(&mut self, tls: Arc<ClientConfig>) {
        self.tls = tls;
        self.connection = None;
        self.fail_back.iter_mut().for_each(FailBack::reset);
    }

    /// Takes other gateways into use.
    pub fn set_endpoints(&mut self, endpoints: Vec<Endpoint>, limit: Duration) {
        self.limit = limit;
        if endpoints != self.endpoints {
            self.names = names(&endpoints);
            self.endpoints = endpoints;
            self.current = 0;
            self.connection = None;
            self.fail_back.iter_mut().for_each(FailBack::reset);
        }
    }

    /// Drops the connection; the next request makes a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Posts JSON. Connects first if need be: to the gateway in use, else to each other one in turn.
    ///
    /// A connection that the gateway has closed meanwhile is opened again once; a request that may have arrived is
    /// never repeated here.
    ///
    /// # Errors
    /// [`UplinkError`].
    pub async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<Answer, UplinkError> {
        self.ask("POST", path, body, Duration::ZERO).await
    }

    /// Gets what may take the gateway up to `wait` to have.
    ///
    /// # Errors
    /// [`UplinkError`].
    pub async fn get(&mut self, path: &str, wait: Duration) -> Result<Answer, UplinkError> {
        self.ask("GET", path, Vec::new(), wait).await
    }

    async fn ask(
        &mut self,
        method: &'static str,
        path: &str,
        body: Vec<u8>,
        wait: Duration,
    ) -> Result<Answer, UplinkError> {
        self.go_back().await;
        let endpoint = self.endpoint().to_owned();
        let limit = self.limit.saturating_add(wait);
        let request = self.request(method, path, body)?;
        // Each gateway may be connected to in vain.
        let each = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let all = limit.saturating_add(self.limit.saturating_mul(each));
        // Large; kept off the stacks of all who ask.
        match timeout(all, Box::pin(self.unbounded(request, limit))).await {
            Ok(result) => result,
            Err(_) => {
                self.connection = None;
                Err(UplinkError::Timeout { endpoint, limit })
            }
        }
    }

    async fn unbounded(
        &mut self,
        mut request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Answer, UplinkError> {
        let mut fresh = false;
        loop {
            if self.connection.as_ref().is_none_or(Connection::is_closed) {
                self.connection = Some(self.connect().await?);
                fresh = true;
                // Another gateway may have answered: its name stands in the request.
                self.set_host(&mut request);
            }
            let Some(connection) = &mut self.connection else {
                continue;
            };
            let sent = Instant::now();
            let result = timeout(limit, async {
                if let Err(e) = connection.sender.ready().await {
                    return Err((e, None));
                }
                connection
                    .sender
                    .try_send_request(request)
                    .await
                    .map_err(|mut e| {
                        let unsent = e.take_message();
                        (e.into_error(), unsent)
                    })
            })
            .await;
            match result {
                Err(_) => {
                    self.connection = None;
                    return Err(UplinkError::Timeout {
                        endpoint: self.endpoint().to_owned(),
                        limit,
                    });
                }
                Ok(Err((_, Some(unsent)))) if !fresh => {
                    request = unsent;
                    self.connection = None;
                }
                Ok(Err((e, _))) => {
                    self.connection = None;
                    return Err(broken(self.endpoint().to_owned(), &e));
                }
                Ok(Ok(response)) => return self.read(response, sent.elapsed()).await,
            }
        }
    }

    fn request(
        &self,
        method: &'static str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, UplinkError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("virtengine-node-agent/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| UplinkError::Broken {
                endpoint: self.endpoint().to_owned(),
                message: e.to_string(),
            })?;
        self.set_host(&mut request);
        Ok(request)
    }

    fn set_host(&self, request: &mut Request<Full<Bytes>>) {
        let endpoint = self.endpoint();
        let authority = endpoint.strip_prefix("https://").unwrap_or(endpoint);
        if let Ok(value) = header::HeaderValue::from_str(authority) {
            request.headers_mut().insert(header::HOST, value);
        }
    }

    async fn read(
        &mut self,
        response: hyper::Response<hyper::body::Incoming>,
        latency: Duration,
    ) -> Result<Answer, UplinkError> {
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let date = response
            .headers()
            .get(header::DATE)
            .and_then(|v| super::date::parse(v.to_str().ok()?));
        let limit = self.limit;
        let body = timeout(limit, Limited::new(response.into_body(), MAX_ANSWER).collect()).await;
        match body {
            Ok(Ok(body)) => Ok(Answer {
                status,
                retry_after,
                date,
                body: body.to_bytes().to_vec(),
                latency,
            }),
            Ok(Err(e)) => {
                self.connection = None;
                Err(UplinkError::Broken {
                    endpoint: self.endpoint().to_owned(),
                    message: e.to_string(),
                })
            }
            Err(_) => {
                self.connection = None;
                Err(UplinkError::Timeout {
                    endpoint: self.endpoint().to_owned(),
                    limit,
                })
            }
        }
    }

    async fn connect(&mut self) -> Result<Connection, UplinkError> {
        let mut last = None;
        for _ in 0..self.endpoints.len() {
            if let Some(endpoint) = self.endpoints.get(self.current) {
                match connect(&self.dial, endpoint, &self.tls, self.limit).await {
                    Ok(connection) => return Ok(connection),
                    Err(e) => last = Some(e),
                }
            }
            self.fail_over();
        }
        Err(last.unwrap_or(UplinkError::Connect {
            endpoint: String::new(),
            message: "no endpoint configured; set provider_daemon.endpoint".into(),
        }))
    }
}

fn names(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints.iter().map(ToString::to_string).collect()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints)
            .field("current", &self.current)
            .field("connected", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}
