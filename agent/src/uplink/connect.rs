//! Opening a connection: TCP, TLS, HTTP/1.1.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
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
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::tls;
use super::{Shown, UplinkError};
use crate::config::Endpoint;

/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;
/// After so long without a word the next address is tried too (RFC 8305, section 5).
const SILENT: Duration = Duration::from_millis(250);

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
                let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await?;
                let tcp = first_of(found.take(MOST_ADDRESSES)).await?;
                tcp.set_nodelay(true)?;
                let stream: Box<dyn Stream> = Box::new(tcp);
                Ok(stream)
            })
        })
    }
}

/// The first of these addresses that answers. The next is tried beside those before as soon as one fails or is silent for a
/// moment (RFC 8305): a name may have an address of a host that is off, or of a protocol that leads nowhere.
async fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut trying = JoinSet::new();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = addresses.next() {
            trying.spawn(TcpStream::connect(address));
        }
        let wait = if addresses.peek().is_some() {
            SILENT
        } else {
            Duration::MAX
        };
        match timeout(wait, trying.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(e)))) => failed = e,
            Ok(Some(Err(e))) => failed = io::Error::other(e),
            Ok(None) => return Err(failed),
            Err(_) => {}
        }
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// One HTTP/1.1 connection, and by what it was trusted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) shown: Arc<Shown>,
}

impl Connection {
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

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
            .connect(name.clone(), stream)
            .await
            .map_err(|e| tls(&shown, &e))?;
        // Of a session that is taken up again too: then nothing is sent anew.
        let chain = stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .to_vec();
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
        Ok(Connection {
            sender,
            shown: Arc::new(Shown::new(name, chain)),
        })
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

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    use tokio::net::TcpListener;

    use super::*;

    const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// A host that says nothing: its queue of connections is full, and the kernel drops what comes.
    struct Silent {
        address: SocketAddr,
        _listens: OwnedFd,
        _waiting: Vec<TcpStream>,
    }

    impl Silent {
        async fn start() -> Self {
            let listens = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&listens, &LOOPBACK).unwrap();
            listen(&listens, 0).unwrap();
            let address = SocketAddr::try_from(getsockname(&listens).unwrap()).unwrap();
            let mut waiting = Vec::new();
            while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
                waiting.push(connected.unwrap());
                assert!(waiting.len() < 16, "a queue of none takes few");
            }
            Self {
                address,
                _listens: listens,
                _waiting: waiting,
            }
        }
    }

    /// An address where nobody listens any more.
    async fn nobodys() -> SocketAddr {
        let gone = TcpListener::bind(LOOPBACK).await.unwrap();
        gone.local_addr().unwrap()
    }

    #[tokio::test]
    async fn behind_an_address_that_is_silent_or_refuses_the_next_one_is_reached() {
        let silent = Silent::start().await;
        let refuses = nobodys().await;
        let there = TcpListener::bind(LOOPBACK).await.unwrap();
        let answers = there.local_addr().unwrap();
        for before in [
            vec![],
            vec![silent.address],
            vec![refuses],
            vec![silent.address, refuses],
        ] {
            let reached = first_of(before.into_iter().chain([answers])).await.unwrap();
            assert_eq!(reached.peer_addr().unwrap(), answers);
        }
    }

    #[tokio::test]
    async fn what_none_of_the_addresses_answers_is_told() {
        let refuses = nobodys().await;
        let failed = first_of([refuses, refuses].into_iter()).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionRefused);
        let failed = first_of(std::iter::empty()).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
    }
}
