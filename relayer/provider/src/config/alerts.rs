use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::{fail, range};
use super::{ConfigError, Span};

/// Receivers of one kind.
const MOST: usize = 8;

/// Who is told what is wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Alerts {
    /// How long alerts of one kind and cluster are gathered before they are told together. What is over by then is not told.
    pub group_wait: Span,
    /// The oldest report may wait for so long before that is an alert.
    pub unsettled_after: Span,
    /// A certificate that ends within this, or within a sixth of its own life where that is less, is an alert.
    pub certificate_before: Span,
    /// Whether the log is told.
    pub log: bool,
    /// Receivers of signed JSON.
    pub webhooks: Vec<Webhook>,
    /// Alertmanagers of Prometheus, API version 2.
    pub alertmanagers: Vec<Alertmanager>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            group_wait: Span::seconds(10),
            unsettled_after: Span::seconds(300),
            certificate_before: Span::seconds(14 * 86_400),
            log: true,
            webhooks: Vec::new(),
            alertmanagers: Vec::new(),
        }
    }
}

/// A receiver of signed JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Where it is posted.
    pub url: String,
    /// File with the secret of the HMAC, mode 0600.
    pub secret_file: PathBuf,
    /// CA of the receiver's certificate, PEM; without it those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

/// An Alertmanager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alertmanager {
    /// Its base, such as `http://127.0.0.1:9093`.
    pub url: String,
    /// File with a bearer token, mode 0600.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// CA of its certificate, PEM; without it those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

impl Alerts {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let day = 86_400;
        range(
            "alerts.group_wait",
            self.group_wait,
            Span::millis(100),
            Span::seconds(600),
        )?;
        range(
            "alerts.unsettled_after",
            self.unsettled_after,
            Span::seconds(60),
            Span::seconds(day),
        )?;
        range(
            "alerts.certificate_before",
            self.certificate_before,
            Span::seconds(0),
            Span::seconds(365 * day),
        )?;
        let webhooks: Vec<&str> = self.webhooks.iter().map(|w| w.url.as_str()).collect();
        let managers: Vec<&str> = self.alertmanagers.iter().map(|a| a.url.as_str()).collect();
        for (key, urls) in [("alerts.webhooks", webhooks), ("alerts.alertmanagers", managers)] {
            if urls.len() > MOST {
                fail(key, format!("has more than {MOST} entries"))?;
            }
            for (number, url) in urls.iter().enumerate() {
                if !(url.starts_with("http://") || url.starts_with("https://")) {
                    fail(key, format!("{url:?} is no http:// or https:// URL"))?;
                }
                if url.contains('@') {
                    fail(key, "a URL has no user and password; put a secret into a file")?;
                }
                if urls.iter().take(number).any(|other| other == url) {
                    fail(key, format!("names {url} twice"))?;
                }
            }
        }
        Ok(())
    }
}
