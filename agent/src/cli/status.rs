use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hpc_schema::time::UnixSeconds;
use serde_json::json;

use super::output::print;
use super::{ConfigArguments, Failure, Format};
use crate::config::DEFAULT_STATE_DIR;
use crate::clock::unix_seconds;
use crate::state::{Lock, StateDir, Status};
use crate::status::{Verdict, judge};

/// `status`.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    #[command(flatten)]
    config: ConfigArguments,
    /// State directory; default: as configured
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl StatusCommand {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let dir = match self.state_dir {
            Some(dir) => dir,
            // Without a readable file the default place is as good a guess as any.
            None if !self.config.config.exists() => DEFAULT_STATE_DIR.into(),
            None => self.config.load()?.state_dir,
        };
        let state = StateDir::new(&dir);
        let running = Lock::is_held(&state);
        let status = Status::load(&state).map_err(|e| Failure::new(1, e))?;
        let now = unix_seconds();
        let verdict = judge(status.as_ref(), running, now);
        match self.output {
            Format::Text => text(status.as_ref(), &verdict, now),
            format => {
                let value = json!({"healthy": verdict.healthy, "running": running, "problems": verdict.problems, "status": status});
                print(&value, format)?;
            }
        }
        Ok(if verdict.healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn text(status: Option<&Status>, verdict: &Verdict, now: u64) {
    println!("{}", if verdict.healthy { "healthy" } else { "not healthy" });
    for problem in &verdict.problems {
        println!("  - {problem}");
    }
    let Some(s) = status else { return };
    let ago = |t: u64| format!("{} s ago", now.saturating_sub(t));
    if let (Some(node), Some(cluster)) = (&s.node_id, &s.cluster_id) {
        println!("node:            {node} in cluster {cluster}");
    }
    if let Some(c) = &s.chain {
        println!(
            "state on chain:  {} at height {}, report {} settled, epoch {}",
            c.node_state, c.height, c.settled_sequence, c.epoch
        );
    }
    if let Some(t) = s.last_accepted_at {
        println!(
            "last heartbeat:  accepted {}, sequence {}, every {} s",
            ago(t),
            s.sequence,
            s.interval_seconds
        );
    }
    println!(
        "since start:     {} accepted, {} failed, started {}",
        s.accepted,
        s.failed,
        ago(s.started_at)
    );
    if let Some(health) = &s.health {
        println!("health reported: {health}");
    }
    if let Some(endpoint) = &s.endpoint {
        let latency = s
            .gateway_latency_us
            .map_or(String::new(), |us| format!(", {}.{:03} ms", us / 1000, us % 1000));
        let skew = s
            .clock_skew_ms
            .map_or(String::new(), |ms| format!(", its clock {ms:+} ms"));
        println!("gateway:         {endpoint}{latency}{skew}");
    }
    if let Some(c) = &s.certificate {
        println!(
            "certificate:     until {}, renewed from {} ({})",
            UnixSeconds(c.not_after),
            UnixSeconds(c.renew_at),
            c.path
        );
    }
    for (what, problem) in [
        ("last refusal:   ", &s.last_refusal),
        ("last error:     ", &s.last_error),
    ] {
        if let Some(p) = problem {
            println!("{what} {}: {} ({})", p.code, p.message, ago(p.at));
            println!("                 remedy: {}", p.remedy);
        }
    }
}
