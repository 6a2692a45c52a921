//! Clients of HTTP servers.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Certificate, Client, Url, redirect};

use crate::rpc::causes;

/// Longest wait for a connection.
const CONNECTING: Duration = Duration::from_secs(5);

/// How long an unused connection is kept. CometBFT ends it after 10 s (its `ReadTimeout`, as Go reads it), and a request that
/// meets that end is neither sent nor known not to be.
const UNUSED: Duration = Duration::from_secs(5);

/// TLS cannot be set up, most often because the machine has no CA.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}; install the package ca-certificates, or name CAs in SSL_CERT_FILE")]
pub struct SetupError(String);

/// The CAs of a PEM file.
///
/// # Errors
/// What is wrong with it, in words.
pub fn roots(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let found = Certificate::from_pem_bundle(pem).map_err(|e| e.to_string())?;
    if found.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    Ok(found)
}

/// A client of the server at `url` that waits so long for an answer, connecting included, and is led nowhere else. The CAs
/// that count are these; without any the system's. One that is for `http://` alone needs none, and not every machine has any:
/// the package `ca-certificates` is missing in many containers.
///
/// # Errors
/// [`SetupError`].
pub fn client(url: &str, timeout: Duration, roots: Option<&[Certificate]>) -> Result<Client, SetupError> {
    // The first of the process wins; another part may have installed the same one already.
    rustls::crypto::ring::default_provider().install_default().ok();
    let set_up = || {
        let builder = Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout.min(CONNECTING))
            .pool_idle_timeout(UNUSED)
            .redirect(redirect::Policy::none());
        // A site's proxy cannot reach this machine's loopback.
        if is_near(url) { builder.no_proxy() } else { builder }
    };
    let made = match roots {
        Some(roots) => set_up().tls_certs_only(roots.to_vec()).build(),
        None => match set_up().build() {
            // Where there are CAs they serve for a proxy that is spoken to over TLS.
            Err(_) if url.starts_with("http://") => set_up().tls_certs_only([]).build(),
            made => made,
        },
    };
    made.map_err(|e| SetupError(causes(&e)))
}

/// True for an address of this machine that nothing else can reach.
fn is_near(url: &str) -> bool {
    let url = Url::parse(url).ok();
    url.as_ref().and_then(Url::host_str).is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::extract::ConnectInfo;
    use axum::routing::get;
    use tokio::net::TcpListener;
    use tokio::time;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_left_before_a_node_ends_it() {
        let from = |ConnectInfo(from): ConnectInfo<SocketAddr>| async move { from.to_string() };
        let server = Router::new().route("/", get(from));
        let server = server.into_make_service_with_connect_info::<SocketAddr>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, server).await.unwrap() });
        let client = client(&url, Duration::from_secs(10), None).unwrap();
        let ask = async || client.get(&url).send().await.unwrap().text().await.unwrap();
        let later = async |span| {
            time::pause();
            time::advance(span).await;
            time::resume();
        };
        let first = ask().await;
        later(Duration::from_secs(3)).await;
        assert_eq!(ask().await, first, "a connection serves more than one request");
        later(Duration::from_secs(9)).await;
        assert_ne!(ask().await, first, "the other side may be about to end it");
    }

    #[test]
    fn what_no_proxy_can_reach_is_told_from_what_one_may() {
        for near in ["http://localhost:1", "http://127.0.0.2:1/x", "https://[::1]:9465"] {
            assert!(is_near(near), "{near}");
        }
        for far in [
            "http://localhost.example:1",
            "http://10.0.0.1:1",
            "https://[::2]",
            "x",
        ] {
            assert!(!is_near(far), "{far}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_told() {
        assert_eq!(roots(b"no certificate").unwrap_err(), "holds no certificate");
    }
}
