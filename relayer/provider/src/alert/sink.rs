//! Receivers, and how they are spoken to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use hpc_chain::http::{self, SetupError};
use hpc_chain::keys::{FileError, read_private};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use sha2::{Digest as _, Sha256};

use crate::clock;
use crate::config::Alerts;

/// Deadline of one delivery, connecting included.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest secret file.
const MOST_SECRET: u64 = 4096;

/// What a receiver understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Webhook,
    Alertmanager,
}

/// Why a receiver cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A secret cannot be read.
    #[error("{key}: {source}")]
    Secret {
        /// Key of the configuration.
        key: &'static str,
        /// Why.
        source: FileError,
    },
    /// A file is empty, or no certificate.
    #[error("{key}: {}: {message}", path.display())]
    File {
        /// Key of the configuration.
        key: &'static str,
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// TLS cannot be set up.
    #[error("{key}: {source}")]
    Tls {
        /// Key of the configuration.
        key: &'static str,
        /// Why.
        source: SetupError,
    },
    /// No answer, or not the one that says that it was taken.
    #[error("{0}")]
    Refused(String),
    /// This message is not taken, whenever it comes.
    #[error("HTTP {0}")]
    Unfit(u16),
}

/// A receiver.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    /// In the store: stays as long as the URL does.
    pub(super) id: String,
    /// For people.
    pub(super) name: String,
    pub(super) kind: Kind,
    url: String,
    secret: Option<PathBuf>,
    http: Option<reqwest::Client>,
}

/// Whether every file that is named can be used as it will be.
pub(crate) fn check(alerts: &Alerts) -> Result<(), SinkError> {
    for sink in sinks(alerts)? {
        if let Some(path) = &sink.secret {
            read_secret(sink.kind, path)?;
        }
    }
    Ok(())
}

/// The receivers that are configured.
pub(super) fn sinks(alerts: &Alerts) -> Result<Vec<Sink>, SinkError> {
    let mut sinks = Vec::new();
    if alerts.log {
        sinks.push(Sink {
            id: "log".into(),
            name: "the log".into(),
            kind: Kind::Log,
            url: String::new(),
            secret: None,
            http: None,
        });
    }
    for w in &alerts.webhooks {
        let http = client("alerts.webhooks.ca_file", &w.url, w.ca_file.as_deref())?;
        sinks.push(remote(Kind::Webhook, &w.url, Some(&w.secret_file), http));
    }
    for a in &alerts.alertmanagers {
        let http = client("alerts.alertmanagers.ca_file", &a.url, a.ca_file.as_deref())?;
        sinks.push(remote(Kind::Alertmanager, &a.url, a.token_file.as_ref(), http));
    }
    tell_apart(&mut sinks);
    Ok(sinks)
}

/// Those of one host have the name with their place in the configuration: what one takes says nothing of another.
fn tell_apart(sinks: &mut [Sink]) {
    let names: Vec<String> = sinks.iter().map(|s| s.name.clone()).collect();
    for (kind, key) in [
        (Kind::Webhook, "alerts.webhooks"),
        (Kind::Alertmanager, "alerts.alertmanagers"),
    ] {
        for (at, sink) in sinks.iter_mut().filter(|s| s.kind == kind).enumerate() {
            if names.iter().filter(|n| **n == sink.name).count() > 1 {
                sink.name = format!("{} ({key}[{at}])", sink.name);
            }
        }
    }
}

fn remote(kind: Kind, url: &str, secret: Option<&PathBuf>, http: reqwest::Client) -> Sink {
    let word = if kind == Kind::Webhook {
        "webhook"
    } else {
        "alertmanager"
    };
    let digest = hex::encode(Sha256::digest(url));
    // Without path and query: keys of hosted receivers stand there.
    let shown = reqwest::Url::parse(url).ok();
    let shown = shown
        .as_ref()
        .and_then(|u| u.host_str())
        .unwrap_or_default()
        .to_owned();
    Sink {
        id: format!("{word}-{}", digest.get(..16).unwrap_or_default()),
        name: format!("{word} {shown}"),
        kind,
        url: if kind == Kind::Alertmanager {
            format!("{}/api/v2/alerts", url.trim_end_matches('/'))
        } else {
            url.to_owned()
        },
        secret: secret.cloned(),
        http: Some(http),
    }
}

fn client(key: &'static str, url: &str, ca: Option<&Path>) -> Result<reqwest::Client, SinkError> {
    let mut roots = None;
    if let Some(path) = ca {
        let file = |message: String| SinkError::File {
            key,
            path: path.to_owned(),
            message,
        };
        let pem = std::fs::read(path).map_err(|e| file(e.to_string()))?;
        roots = Some(http::roots(&pem).map_err(file)?);
    }
    http::client(url, DEADLINE, roots.as_deref()).map_err(|source| SinkError::Tls { key, source })
}

/// The secret as it is now: it may be changed while the daemon runs.
fn read_secret(kind: Kind, path: &Path) -> Result<Vec<u8>, SinkError> {
    let key = if kind == Kind::Webhook {
        "alerts.webhooks.secret_file"
    } else {
        "alerts.alertmanagers.token_file"
    };
    let bytes = read_private(path, MOST_SECRET).map_err(|source| SinkError::Secret { key, source })?;
    let secret = bytes.trim_ascii().to_vec();
    let file = |message: &str| SinkError::File {
        key,
        path: path.to_owned(),
        message: message.into(),
    };
    match kind {
        Kind::Webhook if secret.len() < 16 => Err(file(
            "has fewer than 16 bytes; write e.g. `openssl rand -hex 32` into it",
        )),
        Kind::Alertmanager if secret.is_empty() || !secret.iter().all(u8::is_ascii_graphic) => {
            Err(file("is no token"))
        }
        _ => Ok(secret),
    }
}

/// The value of `X-VirtEngine-Signature`: HMAC-SHA-256 over `<unix seconds>.<body>`.
#[must_use]
pub fn signature(secret: &[u8], unix_seconds: u64, body: &str) -> String {
    // A key of any length is taken.
    let digest = Hmac::<Sha256>::new_from_slice(secret).map(|mut mac| {
        mac.update(unix_seconds.to_string().as_bytes());
        mac.update(b".");
        mac.update(body.as_bytes());
        hex::encode(mac.finalize().into_bytes())
    });
    format!("t={unix_seconds},v1={}", digest.unwrap_or_default())
}

impl Sink {
    /// Delivers a message once; only what the receiver says it has taken is delivered.
    pub(super) async fn deliver(&self, id: &str, body: String) -> Result<(), SinkError> {
        let Some(http) = &self.http else {
            log(&body);
            return Ok(());
        };
        let secret = self
            .secret
            .as_ref()
            .map(|path| read_secret(self.kind, path))
            .transpose()?;
        let mut request = http
            .post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header("X-VirtEngine-Delivery", id);
        if let Some(secret) = secret {
            request = if self.kind == Kind::Webhook {
                let signed = signature(&secret, clock::now().0, &body);
                request.header("X-VirtEngine-Signature", signed)
            } else {
                request.header(
                    AUTHORIZATION,
                    format!("Bearer {}", String::from_utf8_lossy(&secret)),
                )
            };
        }
        let answer = request.body(body).send().await.map_err(|e| {
            let why = if e.is_timeout() {
                "no answer in time"
            } else {
                "cannot be reached"
            };
            SinkError::Refused(why.to_owned())
        })?;
        // What it answers beside its status is not read.
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        match status.as_u16() {
            // Of the message itself: malformed, too large, not understood.
            code @ (400 | 413 | 422) => Err(SinkError::Unfit(code)),
            code => Err(SinkError::Refused(format!("HTTP {code}"))),
        }
    }
}

/// A line for each alert of a message.
fn log(body: &str) {
    let Ok(message) = serde_json::from_str::<serde_json::Value>(body) else {
        return;
    };
    let text =
        |value: Option<&serde_json::Value>| value.and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let (name, severity) = (text(message.get("name")), text(message.get("severity")));
    let firing = text(message.get("status")) == "firing";
    for alert in message
        .get("alerts")
        .and_then(|a| a.as_array())
        .into_iter()
        .flatten()
    {
        let summary = text(alert.get("summary"));
        if firing {
            tracing::warn!(alert = name, severity, "alert: {summary}");
        } else {
            tracing::info!(alert = name, severity, "resolved: {summary}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_on_one_host_have_names_of_their_own() {
        let sink = |kind, url| remote(kind, url, None, client("alerts", url, None).unwrap());
        let mut sinks = [
            sink(Kind::Webhook, "http://a/1"),
            sink(Kind::Webhook, "http://b/1"),
            sink(Kind::Webhook, "http://a/2"),
            sink(Kind::Alertmanager, "http://a"),
        ];
        tell_apart(&mut sinks);
        let names: Vec<&str> = sinks.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "webhook a (alerts.webhooks[0])",
                "webhook b",
                "webhook a (alerts.webhooks[2])",
                "alertmanager a"
            ]
        );
    }

    #[test]
    fn the_signature_is_that_of_time_and_body() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let signed = signature(b"0123456789abcdef", 1_700_000_000, "{}");
        let (time, mac) = signed.split_once(",v1=").unwrap();
        assert_eq!(time, "t=1700000000");
        assert_eq!(
            mac,
            "e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
        );
        assert_ne!(signed, signature(b"0123456789abcdef", 1_700_000_001, "{}"));
        assert_ne!(signed, signature(b"0123456789abcdeg", 1_700_000_000, "{}"));
        assert_ne!(signed, signature(b"0123456789abcdef", 1_700_000_000, "{ }"));
    }
}
