//! Mutual TLS and just enough of HTTP/1.1: one connection that stays open.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::known::Known;

/// Largest answer that is read.
const MAX_ANSWER: usize = 64 * 1024;

/// TLS of one node: its certificate, this CA, every handshake a full one.
///
/// # Errors
/// If rustls refuses a certificate.
pub fn tls(node: &Known, ca_pem: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![node.certificate.clone()], node.tls_key.clone_key())?;
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// One open connection, with TLS if nothing else is said.
#[derive(Debug)]
pub struct Connection<S = TlsStream<TcpStream>> {
    stream: S,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// If the other side refuses.
    pub async fn open(to: SocketAddr, tls: Arc<ClientConfig>) -> Result<Self> {
        let stream = TcpStream::connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        Ok(Self::over(TlsConnector::from(tls).connect(name, stream).await?))
    }
}

impl Connection<TcpStream> {
    /// Connects without TLS.
    ///
    /// # Errors
    /// If nobody listens.
    pub async fn open_plain(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn over(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(4096),
        }
    }

    /// Sends a request and reads its answer; whether it is an accepted heartbeat.
    ///
    /// # Errors
    /// If the connection ends.
    pub async fn ask(&mut self, request: &[u8]) -> Result<bool> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        let mut wanted = None;
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(
                read > 0,
                "the connection ended within an answer: {}",
                String::from_utf8_lossy(&self.buffer)
            );
            if wanted.is_none() {
                wanted = end_of_answer(&self.buffer)?;
            }
            if wanted.is_some_and(|wanted| self.buffer.len() >= wanted) {
                return Ok(contains(&self.buffer, b"\"accepted\":true"));
            }
        }
    }

    /// What the last answer was.
    #[must_use]
    pub fn last(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    /// Closes it and waits until the other side has done so: it has then dealt with everything before.
    ///
    /// # Errors
    /// If the connection breaks instead.
    pub async fn close(mut self) -> Result<()> {
        self.stream.shutdown().await?;
        self.buffer.clear();
        while self.stream.read_buf(&mut self.buffer).await.is_ok_and(|n| n > 0) {}
        Ok(())
    }
}

/// Bytes of the answer, once its head is there.
fn end_of_answer(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        ensure!(bytes.len() < MAX_ANSWER, "an answer without end");
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes.get(..head).unwrap_or_default()).to_ascii_lowercase();
    if text.starts_with("http/1.1 204") {
        return Ok(Some(head + 4));
    }
    let length = text
        .lines()
        .find_map(|l| l.strip_prefix("content-length:"))
        .with_context(|| format!("an answer without a length: {text}"))?;
    Ok(Some(head + 4 + length.trim().parse::<usize>()?))
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|w| w == what)
}
