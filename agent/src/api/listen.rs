//! The listener: few connections, each with one request and little time.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::access::{Rate, Token};
use super::answer::Answer;
use super::board::Board;
use super::route;
use super::source::Source;
use crate::clock::instant;
use crate::config::{ApiTlsConfig, Config, ConfigError};
use crate::uplink::provider;

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 16;
/// Time of a connection, its TLS handshake with it.
const LIFE: Duration = Duration::from_secs(10);
/// Time of a request's head.
const HEAD: Duration = Duration::from_secs(5);
/// Largest head of a request; hyper takes no less.
const BUFFER: usize = 8 << 10;

/// Why there is no interface.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address is taken, or not of this host.
    #[error("api.listen: {address}: {source}; choose another, or off")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A file of its TLS.
    #[error("{key}: {path}: {message}")]
    Tls {
        /// The key.
        key: &'static str,
        /// Its file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// The token.
    #[error(transparent)]
    Token(#[from] ConfigError),
}

/// A bound interface.
pub struct Api {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    tls: Option<TlsAcceptor>,
    token: Option<Token>,
    rate: Rate,
    /// Of those without the token: they leave whoever has it its share.
    strangers: Rate,
}

/// Binds the interface that `config` asks for; none if it asks for none.
///
/// # Errors
/// [`ApiError`].
pub async fn bind(config: &Config, board: Arc<Board>) -> Result<Option<Api>, ApiError> {
    let Some(address) = config.api.listen else {
        return Ok(None);
    };
    let now = instant();
    let shared = Shared {
        source: Source::new(config, board, now),
        tls: config.api.tls.as_ref().map(acceptor).transpose()?,
        token: config.api.token_file.as_deref().map(Token::read).transpose()?,
        rate: Rate::new(now),
        strangers: Rate::new(now),
    };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| ApiError::Bind { address, source })?;
    Ok(Some(Api {
        listener,
        shared: Arc::new(shared),
    }))
}

fn acceptor(tls: &ApiTlsConfig) -> Result<TlsAcceptor, ApiError> {
    let fail = |key, path: &std::path::Path, e: &dyn fmt::Display| ApiError::Tls {
        key,
        path: path.display().to_string(),
        message: e.to_string(),
    };
    let certificates = |key: &'static str, path: &std::path::Path| -> Result<Vec<_>, ApiError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
            .map_err(|e| fail(key, path, &e))?
            .collect();
        match all {
            Ok(all) if all.is_empty() => Err(fail(key, path, &"holds no certificate")),
            Ok(all) => Ok(all),
            Err(e) => Err(fail(key, path, &e)),
        }
    };
    let chain = certificates("api.tls.cert", &tls.cert)?;
    let private = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| fail("api.tls.key", &tls.key, &e))?;
    let versions = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|e| fail("api.tls.cert", &tls.cert, &e))?;
    let builder = match &tls.client_ca {
        None => versions.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for ca in certificates("api.tls.client_ca", path)? {
                roots.add(ca).map_err(|e| fail("api.tls.client_ca", path, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .map_err(|e| fail("api.tls.client_ca", path, &e))?;
            versions.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, private)
        .map_err(|e| fail("api.tls.key", &tls.key, &e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Api {
    /// Where it listens.
    ///
    /// # Errors
    /// IO.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((tcp, _)) => {
                    let shared = Arc::clone(&self.shared);
                    tokio::spawn(async move {
                        // Whoever takes too long, or breaks off, knows.
                        timeout(LIFE, connection(tcp, shared)).await.ok();
                        drop(place);
                    });
                }
                // Out of descriptors, most likely: others let go of some.
                Err(e) => {
                    tracing::debug!("api: {e}");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

async fn connection(tcp: TcpStream, shared: Arc<Shared>) {
    tcp.set_nodelay(true).ok();
    match shared.tls.clone() {
        None => http(tcp, shared).await,
        Some(tls) => match tls.accept(tcp).await {
            Ok(stream) => http(stream, shared).await,
            Err(e) => tracing::debug!("api: TLS: {e}"),
        },
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = shared.answer(&request);
        async move { Ok::<Response<Full<Bytes>>, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(e) = served {
        tracing::debug!("api: {e}");
    }
}

impl Shared {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let now = instant();
        let head = request.method() == Method::HEAD;
        let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let known = self.token.as_ref().is_none_or(|t| t.is_in(header));
        let rate = if known { &self.rate } else { &self.strangers };
        let answer = if !rate.take(now) {
            Answer::refused(429, "too many requests", "ask again in a second")
        } else if !known {
            Answer::refused(
                401,
                "the token is missing or wrong",
                "send Authorization: Bearer with the token of api.token_file",
            )
        } else {
            route::answer(&self.source, request.method(), request.uri().path(), now)
        };
        answer.into_response(head)
    }
}
