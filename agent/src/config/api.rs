//! Section `api` of the file: the local HTTP interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Where specification 002 puts the interface.
pub const DEFAULT_API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// The local HTTP interface, read-only. Another address than the loopback needs `tls`, and `token_file` or
/// `tls.client_ca`.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// `address:port`, or `off`; default `127.0.0.1:9000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// File with the token that every request must bear (`Authorization: Bearer …`); not world-readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// TLS.
    pub tls: ApiTls,
}

/// TLS of the local HTTP interface.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiTls {
    /// PEM file of its certificate, with the chain behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// PEM file of its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file of the CAs that clients must have their certificate from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
}

/// The local HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    /// Where it listens; none: it does not.
    pub listen: Option<SocketAddr>,
    /// The token's file.
    pub token_file: Option<PathBuf>,
    /// Its TLS; none: plain HTTP.
    pub tls: Option<ApiTlsConfig>,
}

/// Its TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiTlsConfig {
    /// Certificate.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// CAs of clients; none: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

fn refuse(key: &'static str, message: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        key,
        message: message.into(),
    }
}

pub(super) fn resolve(section: Api) -> Result<ApiConfig, ConfigError> {
    let listen = match section.listen.as_deref() {
        None => Some(DEFAULT_API),
        Some("off") => None,
        Some(text) => Some(text.parse::<SocketAddr>().map_err(|_| {
            refuse(
                "api.listen",
                format!("must be address:port, such as 127.0.0.1:9000, or off; is {text:?}"),
            )
        })?),
    };
    for (key, path) in [
        ("api.token_file", &section.token_file),
        ("api.tls.cert", &section.tls.cert),
        ("api.tls.key", &section.tls.key),
        ("api.tls.client_ca", &section.tls.client_ca),
    ] {
        if let Some(path) = path.as_ref().filter(|p| !p.is_absolute()) {
            return Err(refuse(
                key,
                format!("must be an absolute path, is {}", path.display()),
            ));
        }
    }
    let ApiTls { cert, key, client_ca } = section.tls;
    let tls = match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => Some(ApiTlsConfig { cert, key, client_ca }),
        (None, None, None) => None,
        (None, ..) => return Err(refuse("api.tls.cert", "is needed for TLS")),
        (_, None, _) => return Err(refuse("api.tls.key", "is needed for TLS")),
    };
    if let Some(address) = listen.filter(|a| !a.ip().is_loopback()) {
        let Some(tls) = &tls else {
            return Err(refuse(
                "api.listen",
                format!(
                    "{address} can be reached from outside: set api.tls.cert and api.tls.key, and api.token_file or \
                     api.tls.client_ca; or listen on 127.0.0.1"
                ),
            ));
        };
        if section.token_file.is_none() && tls.client_ca.is_none() {
            return Err(refuse(
                "api.listen",
                format!("{address} can be reached from outside: set api.token_file or api.tls.client_ca"),
            ));
        }
    }
    Ok(ApiConfig {
        listen,
        token_file: section.token_file,
        tls,
    })
}

#[cfg(test)]
mod tests {
    use super::{ApiConfig, DEFAULT_API};
    use crate::config::{parse, resolve};

    fn read(text: &str) -> Result<ApiConfig, String> {
        let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
        let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
        resolve(file).map(|c| c.api).map_err(|e| e.to_string())
    }

    #[test]
    fn the_interface_is_of_the_loopback_unless_it_is_guarded() {
        assert_eq!(read("").unwrap().listen, Some(DEFAULT_API));
        assert_eq!(read("api: {listen: 'off'}").unwrap().listen, None);
        assert!(read("api: {listen: '[::1]:9000'}").is_ok());
        for open in [
            "api: {listen: '0.0.0.0:9000'}",
            "api: {listen: '[::]:9000'}",
            "api: {listen: '192.0.2.1:9000', token_file: /t}",
            "api: {listen: '192.0.2.1:9000', tls: {cert: /c, key: /k}}",
        ] {
            let e = read(open).unwrap_err();
            assert!(
                e.starts_with("api.listen: ") && e.contains("from outside"),
                "{open}: {e}"
            );
        }
        for guarded in [
            "api: {listen: '0.0.0.0:9000', tls: {cert: /c, key: /k}, token_file: /t}",
            "api: {listen: '0.0.0.0:9000', tls: {cert: /c, key: /k, client_ca: /a}}",
        ] {
            assert!(read(guarded).is_ok(), "{guarded}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (bad, key) in [
            ("api: {listen: '9000'}", "api.listen"),
            ("api: {listen: 'localhost:9000'}", "api.listen"),
            ("api: {token_file: t}", "api.token_file"),
            ("api: {tls: {cert: /c}}", "api.tls.key"),
            ("api: {tls: {client_ca: /c}}", "api.tls.cert"),
            ("api: {tls: {cert: c, key: /k}}", "api.tls.cert"),
        ] {
            assert!(read(bad).unwrap_err().contains(key), "{bad}");
        }
    }
}
