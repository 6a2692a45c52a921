//! Clients of HTTP servers.

use reqwest::{Client, ClientBuilder};

/// The client that `make` sets up. One that is for `http://` alone needs no CA, and not every machine has any: the package
/// `ca-certificates` is missing in many containers.
///
/// # Errors
/// If TLS cannot be set up.
pub fn client(url: &str, make: impl Fn() -> ClientBuilder) -> reqwest::Result<Client> {
    // The first of the process wins; another part may have installed the same one already.
    rustls::crypto::ring::default_provider().install_default().ok();
    match make().build() {
        // Where there are CAs they serve for a proxy that is spoken to over TLS.
        Err(_) if url.starts_with("http://") => make().tls_certs_only([]).build(),
        built => built,
    }
}
