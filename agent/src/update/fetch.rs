//! Fetches a release by HTTPS. What comes is not believed: the manifest's signature decides.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::manifest::Release;
use crate::uplink::provider;

/// Manifest or signature.
const SMALL: usize = 16 << 10;
/// A program.
const LARGE: usize = 64 << 20;
/// For each of the three files.
const PATIENCE: Duration = Duration::from_secs(300);

/// The program at `url`, its manifest and signature beside it (`….manifest.json`, `….manifest.json.minisig`). Blocks.
///
/// # Errors
/// What went wrong, as text; trying later may help.
pub fn fetch(url: &str, ca_file: &Path) -> Result<(Release, Vec<u8>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let tls = client(ca_file)?;
    let fetched = runtime.block_on(async {
        let get = |url: String, most: usize| {
            let tls = Arc::clone(&tls);
            async move {
                match timeout(PATIENCE, get(&url, tls, most)).await {
                    Ok(result) => result.map_err(|e| format!("{url}: {e}")),
                    Err(_) => Err(format!("{url}: not fetched within {PATIENCE:?}")),
                }
            }
        };
        let manifest = get(format!("{url}.manifest.json"), SMALL).await?;
        let signature = get(format!("{url}.manifest.json.minisig"), SMALL).await?;
        let signature =
            String::from_utf8(signature).map_err(|e| format!("{url}.manifest.json.minisig: {e}"))?;
        let program = get(url.to_owned(), LARGE).await?;
        Ok((Release { manifest, signature }, program))
    });
    // A name server that does not answer has had its time.
    runtime.shutdown_background();
    fetched
}

fn client(ca_file: &Path) -> Result<Arc<ClientConfig>, String> {
    let explain = |e: &dyn std::fmt::Display| format!("update.ca_file {}: {e}", ca_file.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca_file).map_err(|e| explain(&e))?;
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        return Err(explain(&"holds no certificate"));
    }
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map(|b| Arc::new(b.with_root_certificates(roots).with_no_client_auth()))
        .map_err(|e| e.to_string())
}

async fn get(url: &str, tls: Arc<ClientConfig>, most: usize) -> Result<Vec<u8>, String> {
    let uri: Uri = url.parse().map_err(|e| format!("is no address: {e}"))?;
    let host = uri.host().ok_or("has no host")?.to_owned();
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|e| e.to_string())?;
    let tcp = TcpStream::connect((host.trim_matches(['[', ']']), uri.port_u16().unwrap_or(443)))
        .await
        .map_err(|e| e.to_string())?;
    let stream = TlsConnector::from(tls)
        .connect(name, tcp)
        .await
        .map_err(|e| e.to_string())?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        // The request that it breaks tells of it.
        connection.await.ok();
    });
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let authority = uri.authority().map_or(host.as_str(), |a| a.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(
            header::USER_AGENT,
            concat!("virtengine-node-agent/", env!("CARGO_PKG_VERSION")),
        )
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    // Redirects are not followed: the order names the place.
    if answer.status() != hyper::StatusCode::OK {
        return Err(format!("the server answers {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), most).collect().await;
    body.map(|b| b.to_bytes().to_vec())
        .map_err(|e| format!("{e} (at most {most} bytes)"))
}
