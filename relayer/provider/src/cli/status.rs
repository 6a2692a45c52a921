use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::args::Format;
use super::output;
use crate::config::Config;
use crate::daemon::StartError;
use crate::home::Home;
use crate::store::Store;
use crate::{clock, settle, spool};

const PATIENCE: Duration = Duration::from_secs(3);
const MAX_ANSWER: u64 = 65_536;

#[derive(Debug, Serialize)]
struct Status {
    running: bool,
    ready: bool,
    reasons: Vec<Value>,
    reports_waiting: u64,
    reports_in_transactions: u64,
    open_transactions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_unsettled_seconds: Option<u64>,
}

pub(super) async fn run(home: &Home, config: &Config, format: Format) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    let depth = spool::depth(store.reader()).await?;
    let asked = timeout(PATIENCE, readiness(config))
        .await
        .ok()
        .and_then(Result::ok);
    let ready = asked
        .as_ref()
        .and_then(|v| v.get("ready"))
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let reasons = asked
        .as_ref()
        .and_then(|v| v.get("reasons"))
        .and_then(Value::as_array)
        .cloned();
    let status = Status {
        running: asked.is_some(),
        ready,
        reasons: reasons.unwrap_or_default(),
        reports_waiting: depth.waiting,
        reports_in_transactions: depth.bound,
        open_transactions: settle::open_transactions(store.reader()).await?,
        oldest_unsettled_seconds: depth
            .oldest
            .map(|since| clock::now_ms().saturating_sub(since) / 1000),
    };
    output::value(&status, format)
}

/// `/readyz` of the daemon on this machine.
async fn readiness(config: &Config) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(config.ops.listen).await?;
    stream
        .write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    let text = String::from_utf8(answer)?;
    let (_, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow::anyhow!("no HTTP answer"))?;
    Ok(serde_json::from_str(body)?)
}
