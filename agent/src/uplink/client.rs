//! One kept-alive HTTP/1.1 connection over TLS, to the first gateway that answers.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

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
    /// From the first byte sent to the answer's head.
    pub latency: Duration,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// No gateway could be reached; the last one's reason.
    #[error("cannot reach {endpoint}: {message}")]
    Connect {
        /// The last gateway tried.
        endpoint: String,
        /// Why.
        message: String,
    },
    /// TLS failed: unknown CA, wrong name, refused certificate.
    #[error("TLS with {endpoint}: {message}")]
    Tls {
        /// The gateway.
        endpoint: String,
        /// Why.
        message: String,
        /// The gateway refused our certificate.
        certificate_refused: bool,
    },
    /// No answer in time.
    #[error("{endpoint} did not answer within {limit:?}")]
    Timeout {
        /// The gateway.
        endpoint: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection broke on the way.
    #[error("the connection to {endpoint} broke: {message}")]
    Broken {
        /// The gateway.
        endpoint: String,
        /// How.
        message: String,
    },
}

impl UplinkError {
    /// Whether the gateway refused our certificate: it has expired, or was revoked.
    #[must_use]
    pub fn certificate_refused(&self) -> bool {
        matches!(
            self,
            Self::Tls {
                certificate_refused: true,
                ..
            }
        )
    }

    /// A stable word for status and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "gateway_unreachable",
            Self::Tls {
                certificate_refused: true,
                ..
            } => "certificate_refused",
            Self::Tls { .. } => "tls_failed",
            Self::Timeout { .. } => "gateway_timeout",
            Self::Broken { .. } => "connection_broken",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Connect { .. } => {
                "check provider_daemon.endpoint, name resolution and firewall; the agent keeps trying"
            }
            Self::Tls {
                certificate_refused: true,
                ..
            } => "the agent recovers its certificate by itself; if it cannot, register again",
            Self::Tls { .. } => {
                "check provider_daemon.tls.ca_cert and that the endpoint's host is a name in the gateway's certificate"
            }
            Self::Timeout { .. } | Self::Broken { .. } => {
                "check the gateway's log and the network; the agent keeps trying"
            }
        }
    }
}

/// A client with one connection. Requests are made one after the other.
pub struct Client {
    endpoints: Vec<Endpoint>,
    /// The endpoint in use, or to be tried first.
    current: usize,
    tls: Arc<ClientConfig>,
    limit: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Nothing is connected before the first request.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self {
            endpoints,
            current: 0,
            tls,
            limit,
            connection: None,
        }
    }

    /// The gateway in use.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.endpoints
            .get(self.current)
            .map_or_else(String::new, ToString::to_string)
    }

    /// Takes another certificate or trust into use; the next request connects anew.
    pub fn set_tls(&mut self, tls: Arc<ClientConfig>) {
        self.tls = tls;
        self.connection = None;
    }

    /// Takes other gateways into use.
    pub fn set_endpoints(&mut self, endpoints: Vec<Endpoint>, limit: Duration) {
        self.limit = limit;
        if endpoints != self.endpoints {
            self.endpoints = endpoints;
            self.current = 0;
            self.connection = None;
        }
    }

    /// Drops the connection; the next request makes a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Moves on to the next gateway, if there is one.
    pub fn fail_over(&mut self) {
        self.connection = None;
        self.current = self
            .current
            .saturating_add(1)
            .checked_rem(self.endpoints.len())
            .unwrap_or(0);
    }

    /// Posts JSON. Connects first if need be: to the gateway in use, else to each other one in turn.
    ///
    /// A connection that the gateway has closed meanwhile is opened again once; a request that may have arrived is
    /// never repeated here.
    ///
    /// # Errors
    /// [`UplinkError`].
    pub async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<Answer, UplinkError> {
        let endpoint = self.endpoint();
        let limit = self.limit;
        match timeout(limit.saturating_mul(2), self.post_unbounded(path, body)).await {
            Ok(result) => result,
            Err(_) => {
                self.connection = None;
                Err(UplinkError::Timeout { endpoint, limit })
            }
        }
    }

    async fn post_unbounded(&mut self, path: &str, body: Vec<u8>) -> Result<Answer, UplinkError> {
        let mut request = self.request(path, body)?;
        let mut fresh = false;
        loop {
            if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
                self.connection = Some(self.connect().await?);
                fresh = true;
                // Another gateway may have answered: its name stands in the request.
                self.set_host(&mut request);
            }
            let Some(connection) = &mut self.connection else {
                continue;
            };
            let sent = Instant::now();
            let limit = self.limit;
            let result = timeout(limit, async {
                if let Err(e) = connection.ready().await {
                    return Err((e, None));
                }
                connection.try_send_request(request).await.map_err(|mut e| {
                    let unsent = e.take_message();
                    (e.into_error(), unsent)
                })
            })
            .await;
            match result {
                Err(_) => {
                    self.connection = None;
                    return Err(UplinkError::Timeout {
                        endpoint: self.endpoint(),
                        limit,
                    });
                }
                Ok(Err((_, Some(unsent)))) if !fresh => {
                    request = unsent;
                    self.connection = None;
                }
                Ok(Err((e, _))) => {
                    self.connection = None;
                    return Err(self.broken(&e));
                }
                Ok(Ok(response)) => return self.read(response, sent.elapsed()).await,
            }
        }
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, UplinkError> {
        let mut request = Request::builder()
            .method("POST")
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("virtengine-node-agent/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| UplinkError::Broken {
                endpoint: self.endpoint(),
                message: e.to_string(),
            })?;
        self.set_host(&mut request);
        Ok(request)
    }

    fn set_host(&self, request: &mut Request<Full<Bytes>>) {
        let endpoint = self.endpoint();
        let authority = endpoint.strip_prefix("https://").unwrap_or(&endpoint);
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
        let limit = self.limit;
        let body = timeout(limit, Limited::new(response.into_body(), MAX_ANSWER).collect()).await;
        match body {
            Ok(Ok(body)) => Ok(Answer {
                status,
                retry_after,
                body: body.to_bytes().to_vec(),
                latency,
            }),
            Ok(Err(e)) => {
                self.connection = None;
                Err(UplinkError::Broken {
                    endpoint: self.endpoint(),
                    message: e.to_string(),
                })
            }
            Err(_) => {
                self.connection = None;
                Err(UplinkError::Timeout {
                    endpoint: self.endpoint(),
                    limit,
                })
            }
        }
    }

    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>, UplinkError> {
        let mut last = None;
        for _ in 0..self.endpoints.len() {
            match self.connect_current().await {
                Ok(connection) => return Ok(connection),
                Err(e) => last = Some(e),
            }
            self.fail_over();
        }
        Err(last.unwrap_or(UplinkError::Connect {
            endpoint: String::new(),
            message: "no endpoint configured; set provider_daemon.endpoint".into(),
        }))
    }

    async fn connect_current(&self) -> Result<SendRequest<Full<Bytes>>, UplinkError> {
        let shown = self.endpoint();
        let fail = |message: String| UplinkError::Connect {
            endpoint: shown.clone(),
            message,
        };
        let Some(endpoint) = self.endpoints.get(self.current) else {
            return Err(fail("no endpoint".into()));
        };
        let limit = self.limit;
        let work = async {
            let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
                .await
                .map_err(|e| fail(e.to_string()))?;
            tcp.set_nodelay(true).map_err(|e| fail(e.to_string()))?;
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| fail(e.to_string()))?;
            let tls = TlsConnector::from(Arc::clone(&self.tls))
                .connect(name, tcp)
                .await
                .map_err(|e| tls_error(&shown, &e))?;
            let (sender, connection) = Builder::new()
                // Heartbeats and answers are a few kilobytes.
                .max_buf_size(64 << 10)
                .handshake(TokioIo::new(tls))
                .await
                .map_err(|e| fail(e.to_string()))?;
            tokio::spawn(async move {
                // The request that it breaks tells of it.
                connection.await.ok();
            });
            Ok(sender)
        };
        match timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(UplinkError::Timeout {
                endpoint: shown.clone(),
                limit,
            }),
        }
    }

    fn broken(&self, e: &hyper::Error) -> UplinkError {
        let endpoint = self.endpoint();
        // With TLS 1.3 a refused client certificate shows only when the first answer is read.
        let mut source = e.source();
        while let Some(s) = source {
            if let Some(io) = s.downcast_ref::<std::io::Error>()
                && io
                    .get_ref()
                    .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
            {
                return tls_error(&endpoint, io);
            }
            source = s.source();
        }
        UplinkError::Broken {
            endpoint,
            message: e.to_string(),
        }
    }
}

fn tls_error(endpoint: &str, e: &std::io::Error) -> UplinkError {
    use rustls::AlertDescription as Alert;
    let rustls_error = e
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let certificate_refused = matches!(
        rustls_error,
        Some(rustls::Error::AlertReceived(
            Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::BadCertificate
                | Alert::CertificateRequired
                | Alert::UnknownCA
                | Alert::AccessDenied
        ))
    );
    UplinkError::Tls {
        endpoint: endpoint.to_owned(),
        message: e.to_string(),
        certificate_refused,
    }
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
