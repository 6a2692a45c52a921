//! Opening a connection: TCP, TLS, HTTP/1.1.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::UplinkError;
use super::error::tls;
use crate::config::Endpoint;

/// Bytes to and from a gateway.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream on its way.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// How a gateway is reached: by TCP, or by whatever a test puts in its place.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn(Endpoint) -> Dialing + Send + Sync>);

impl Dial {
    /// Any way.
    pub fn new(dial: impl Fn(Endpoint) -> Dialing + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    /// TCP.
    #[must_use]
    pub fn tcp() -> Self {
        Self::new(|endpoint| {
            Box::pin(async move {
                let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
                tcp.set_nodelay(true)?;
                let stream: Box<dyn Stream> = Box::new(tcp);
                Ok(stream)
            })
        })
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// One HTTP/1.1 connection.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// Connects to `endpoint` within `limit`.
pub(super) async fn connect(
    dial: &Dial,
    endpoint: &Endpoint,
    config: &Arc<ClientConfig>,
    limit: Duration,
) -> Result<Connection, UplinkError> {
    let shown = endpoint.to_string();
    let fail = |message: String| UplinkError::Connect {
        endpoint: shown.clone(),
        message,
    };
    let work = async {
        let stream = (dial.0)(endpoint.clone())
            .await
            .map_err(|e| fail(e.to_string()))?;
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| fail(e.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(|e| tls(&shown, &e))?;
        let (sender, connection) = Builder::new()
            // Heartbeats and answers are a few kilobytes.
            .max_buf_size(64 << 10)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| fail(e.to_string()))?;
        tokio::spawn(async move {
            // The request that it breaks tells of it.
            connection.await.ok();
        });
        Ok(sender)
    };
    // Large; what lies on the stack once counts as memory for years.
    match timeout(limit, Box::pin(work)).await {
        Ok(result) => result,
        Err(_) => Err(UplinkError::Timeout {
            endpoint: shown.clone(),
            limit,
        }),
    }
}
