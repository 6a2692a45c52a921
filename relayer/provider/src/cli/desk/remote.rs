use std::path::Path;
use std::time::Duration;

use hpc_chain::http;
use hpc_schema::code::Code;
use hpc_schema::gateway::Problem;
use hpc_schema::refusal::{Refusal, RefusalKind};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::admin::AdminError;
use crate::admin::http::PREFIX;
use crate::home;

/// For an answer: longer than the listener takes for what waits for a block.
const PATIENCE: Duration = Duration::from_secs(90);
/// Largest answer in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// How often a question that came too often is asked again, and the longest pause before.
const AGAIN: (u32, u64) = (5, 60);

/// An admin listener, asked with a credential.
pub(in crate::cli) struct Remote {
    http: reqwest::Client,
    base: Url,
    credential: Zeroizing<String>,
}

fn unusable(what: impl std::fmt::Display) -> AdminError {
    AdminError::Home(what.to_string())
}

impl Remote {
    /// The listener at `url`. A credential goes over TLS, or stays on this machine.
    pub(super) fn new(url: &str, credential: &Path, ca: Option<&Path>) -> Result<Self, AdminError> {
        let base = Url::parse(url).map_err(|e| unusable(format!("--admin: {url}: {e}")))?;
        let near = matches!(base.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        match base.scheme() {
            "https" => {}
            "http" if near => {}
            _ => {
                let what =
                    format!("--admin: {url}: write https://HOST:PORT; http:// is for this machine alone");
                return Err(unusable(what));
            }
        }
        if base.path() != "/" || base.query().is_some() || !base.username().is_empty() {
            return Err(unusable(format!(
                "--admin: {url}: write https://HOST:PORT and no more"
            )));
        }
        let text = home::read_secret(credential)
            .map_err(|e| unusable(format!("--credential-file: {}: {e}", credential.display())))?;
        let credential = Zeroizing::new(text.trim().to_owned());
        let mut roots = None;
        if let Some(path) = ca {
            let file = |e: &dyn std::fmt::Display| unusable(format!("--ca-file: {}: {e}", path.display()));
            let pem = std::fs::read(path).map_err(|e| file(&e))?;
            roots = Some(http::roots(&pem).map_err(|e| file(&e))?);
        }
        let http = http::client(base.as_str(), PATIENCE, roots.as_deref())
            .map_err(|e| unusable(format!("--admin, --ca-file: {e}")))?;
        Ok(Self {
            http,
            base,
            credential,
        })
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, Option<&str>)],
    ) -> Result<T, AdminError> {
        self.call(Method::GET, path, query, None).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, Option<&str>)],
        body: &Value,
    ) -> Result<T, AdminError> {
        self.call(Method::POST, path, query, Some(body)).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, Option<&str>)],
        body: Option<&Value>,
    ) -> Result<T, AdminError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(PREFIX.trim_start_matches('/').split('/'));
            segments.extend(path);
        }
        for (name, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let mut tries = 0;
        loop {
            let mut request = self
                .http
                .request(method.clone(), url.clone())
                .bearer_auth(self.credential.as_str());
            if let Some(body) = body {
                request = request
                    .header(CONTENT_TYPE, "application/json")
                    .body(body.to_string());
            }
            let answer = request.send().await.map_err(|e| self.unreachable(&e))?;
            if answer.status().as_u16() == 429 && tries < AGAIN.0 {
                tries += 1;
                let after = answer.headers().get(RETRY_AFTER);
                let seconds = after.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
                sleep(Duration::from_secs(seconds.unwrap_or(1).clamp(1, AGAIN.1))).await;
                continue;
            }
            return self.read(answer).await;
        }
    }

    async fn read<T: DeserializeOwned>(&self, mut answer: Response) -> Result<T, AdminError> {
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|e| self.unreachable(&e))? {
            if bytes.len().saturating_add(part.len()) > MAX_ANSWER {
                return Err(self.odd("its answer is too large"));
            }
            bytes.extend_from_slice(&part);
        }
        if status == 200 {
            return serde_json::from_slice(&bytes).map_err(|e| {
                self.odd(&format!(
                    "its answer cannot be read, is it of another version? {e}"
                ))
            });
        }
        let Ok(problem) = serde_json::from_slice::<Problem>(&bytes) else {
            return Err(self.odd(&format!("HTTP {status}, which no admin listener answers so")));
        };
        let Some(code) = problem.code().filter(|_| matches!(status, 400..=404 | 409 | 413)) else {
            return Err(AdminError::Unreachable(format!(
                "{}: {}",
                problem.code, problem.detail
            )));
        };
        let refusal = Refusal {
            code,
            field: problem.field,
            message: problem.detail,
            kind: RefusalKind::Semantic,
        };
        Err(match status {
            404 if code != Code::Malformed => AdminError::Missing(refusal),
            _ => AdminError::Refused(refusal),
        })
    }

    fn unreachable(&self, e: &reqwest::Error) -> AdminError {
        let mut why = e.to_string();
        let mut source = std::error::Error::source(e);
        while let Some(inner) = source {
            why = inner.to_string();
            source = inner.source();
        }
        self.odd(&format!(
            "{why}; check --admin, --ca-file and admin.listen of the gateway"
        ))
    }

    fn odd(&self, what: &str) -> AdminError {
        AdminError::Unreachable(format!("{}: {what}", self.base.as_str().trim_end_matches('/')))
    }
}
