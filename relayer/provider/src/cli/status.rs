use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::desk::Desk;
use super::output::Output;
use crate::admin::Admin;
use crate::config::Config;
use crate::ops::Readiness;

const PATIENCE: Duration = Duration::from_secs(3);
const MAX_ANSWER: u64 = 65_536;

pub(super) async fn run(desk: &Desk, out: Output) -> anyhow::Result<()> {
    let asked = async |admin: &Admin| {
        let asked = timeout(PATIENCE, readiness(&admin.config)).await;
        asked.ok().and_then(Result::ok)
    };
    out.value(&desk.status(asked).await?)
}

/// `/readyz` of the daemon on this machine.
async fn readiness(config: &Config) -> anyhow::Result<Readiness> {
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
