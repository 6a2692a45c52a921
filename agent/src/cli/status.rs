use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hpc_schema::time::UnixSeconds;
use serde_json::{Value, json};

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format};
use crate::clock::unix_seconds;
use crate::config::DEFAULT_STATE_DIR;
use crate::history::{History, Sample, fields};
use crate::sample::Category;
use crate::state::{Lock, Outages, StateDir, Status};
use crate::status::{Verdict, judge};

/// `status`.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    #[command(flatten)]
    config: ConfigArguments,
    /// State directory; default: as configured
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Also print the samples that are kept of each category
    #[arg(long)]
    history: bool,
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
        let outages = Outages::load(&state);
        let samples = if self.history {
            samples(&state)?
        } else {
            Vec::new()
        };
        match self.output {
            Format::Text => {
                text(status.as_ref(), &verdict, now);
                text_outages(&outages, now);
                samples.iter().for_each(text_samples);
            }
            format => {
                let mut value = json!({
                    "healthy": verdict.healthy, "running": running, "problems": verdict.problems, "status": status,
                    "outages": outages,
                });
                if let Some(object) = value.as_object_mut().filter(|_| self.history) {
                    object.insert("history".into(), json_samples(&samples));
                }
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
    say!("{}", if verdict.healthy { "healthy" } else { "not healthy" });
    for problem in &verdict.problems {
        say!("  - {problem}");
    }
    let Some(s) = status else { return };
    let ago = |t: u64| format!("{} s ago", now.saturating_sub(t));
    if let (Some(node), Some(cluster)) = (&s.node_id, &s.cluster_id) {
        say!("node:            {node} in cluster {cluster}");
    }
    if let Some(c) = &s.chain {
        say!(
            "state on chain:  {} at height {}, report {} settled, epoch {}",
            c.node_state,
            c.height,
            c.settled_sequence,
            c.epoch
        );
    }
    if let Some(t) = s.last_accepted_at {
        say!(
            "last heartbeat:  accepted {}, sequence {}, every {} s",
            ago(t),
            s.sequence,
            s.interval_seconds
        );
    }
    say!(
        "since start:     {} accepted, {} failed, started {}",
        s.accepted,
        s.failed,
        ago(s.started_at)
    );
    if let Some(health) = &s.health {
        say!("health reported: {health}");
    }
    if let Some(endpoint) = &s.endpoint {
        let latency = s
            .gateway_latency_us
            .map_or(String::new(), |us| format!(", {}.{:03} ms", us / 1000, us % 1000));
        let skew = s
            .clock_skew_ms
            .map_or(String::new(), |ms| format!(", its clock {ms:+} ms"));
        say!("gateway:         {endpoint}{latency}{skew}");
    }
    if let Some(c) = &s.certificate {
        say!(
            "certificate:     until {}, renewed from {} ({})",
            UnixSeconds(c.not_after),
            UnixSeconds(c.renew_at),
            c.path
        );
    }
    if let Some(r) = &s.receipt {
        let hash: String = r.payload_sha256.chars().take(16).collect();
        say!("last receipt:    heartbeat {}, SHA-256 {hash}…", r.sequence);
    }
    if let Some(d) = &s.drain {
        let why = d.reason.as_deref().unwrap_or("no reason given");
        say!(
            "drained:         by the provider's order since {}: {why}",
            UnixSeconds(d.since)
        );
    }
    for o in s.orders.iter().rev().take(SHOWN) {
        let detail = o.detail.as_deref().map_or(String::new(), |d| format!(": {d}"));
        say!("order:           {} {} {}{detail}", o.kind, o.status, ago(o.at));
    }
    for (what, problem) in [
        ("last refusal:   ", &s.last_refusal),
        ("last error:     ", &s.last_error),
    ] {
        if let Some(p) = problem {
            say!("{what} {}: {} ({})", p.code, p.message, ago(p.at));
            say!("                 remedy: {}", p.remedy);
        }
    }
}

/// Outages shown; the JSON has them all.
const SHOWN: usize = 3;

fn text_outages(outages: &Outages, now: u64) {
    for o in outages.iter().rev().take(SHOWN) {
        let end = o.until.unwrap_or(now);
        let lasted = end.saturating_sub(o.from);
        let state = if o.until.is_some() { "" } else { ", goes on" };
        say!(
            "not delivered:   from {} for {lasted} s: {} ({} attempts{state})",
            UnixSeconds(o.from),
            o.code,
            o.attempts
        );
    }
}

type Samples = (Category, Vec<Sample>);

fn samples(state: &StateDir) -> Result<Vec<Samples>, Failure> {
    let read = |c| {
        let all = History::read(&state.history(), c, 0).map_err(|e| Failure::new(1, e))?;
        Ok((c, all))
    };
    Category::ALL.into_iter().map(read).collect()
}

fn json_samples(all: &[Samples]) -> Value {
    let rows = |(category, samples): &Samples| {
        let lines: Vec<Value> = samples
            .iter()
            .map(|s| {
                let named = fields(*category).iter().zip(&s.figures);
                let mut row: serde_json::Map<String, Value> =
                    named.map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
                row.insert("at".into(), json!(s.at));
                Value::Object(row)
            })
            .collect();
        let name = serde_json::to_value(category).ok()?;
        Some((name.as_str()?.to_owned(), Value::Array(lines)))
    };
    Value::Object(all.iter().filter_map(rows).collect())
}

fn text_samples((category, samples): &Samples) {
    if samples.is_empty() {
        return;
    }
    say!("\n{category:?}: {} samples", samples.len());
    say!("{:<22}{}", "at", fields(*category).join("  "));
    for s in samples {
        let row: Vec<String> = fields(*category)
            .iter()
            .zip(&s.figures)
            .map(|(name, n)| {
                let shown = n.map_or_else(|| "-".to_owned(), |n| n.to_string());
                format!("{shown:>width$}", width = name.len())
            })
            .collect();
        say!("{:<22}{}", UnixSeconds(s.at).to_string(), row.join("  "));
    }
}
