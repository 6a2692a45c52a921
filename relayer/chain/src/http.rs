//! Clients of HTTP servers.

use reqwest::{Client, ClientBuilder};

use crate::rpc::causes;

/// TLS cannot be set up, most often because the machine has no CA.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}; install the package ca-certificates, or name CAs in SSL_CERT_FILE")]
pub struct SetupError(String);

/// The client that `make` sets up. One that is for `http://` alone needs no CA, and not every machine has any: the package
/// `ca-certificates` is missing in many containers.
///
/// # Errors
/// [`SetupError`].
pub fn client(url: &str, make: impl Fn() -> ClientBuilder) -> Result<Client, SetupError> {
    // The first of the process wins; another part may have installed the same one already.
    rustls::crypto::ring::default_provider().install_default().ok();
    let made = match make().build() {
        // Where there are CAs they serve for a proxy that is spoken to over TLS.
        Err(_) if url.starts_with("http://") => make().tls_certs_only([]).build(),
        made => made,
    };
    made.map_err(|e| SetupError(causes(&e)))
}
