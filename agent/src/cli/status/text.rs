//! Status for people.

use hpc_schema::time::UnixSeconds;

use crate::cli::output::{counted, say};
use crate::state::{Outages, Status};
use crate::status::Verdict;

pub(super) fn text(status: Option<&Status>, verdict: &Verdict, now: u64) {
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
        let number = s
            .last_accepted_sequence
            .map_or(String::new(), |n| format!(", sequence {n}"));
        say!(
            "last heartbeat:  accepted {}{number}, every {} s",
            ago(t),
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
    if let Some(e) = &s.errors_24h {
        say!(
            "errors, 24 h:    {}, and {}, counted since {}",
            e.errors,
            counted(e.warnings, "warning"),
            UnixSeconds(e.since)
        );
    }
    if let Some(why) = &s.errors_24h_missing {
        say!("errors, 24 h:    not known: {why}");
    }
    if let Some(j) = &s.jobs_24h {
        say!(
            "jobs, 24 h:      {} completed, {} failed, counted since {}",
            j.completed,
            j.failed,
            UnixSeconds(j.since)
        );
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
    if !s.work.is_empty() {
        let work: Vec<&str> = s.work.iter().map(hpc_schema::heartbeat::JobId::as_str).collect();
        say!("work of tasks:   {}", work.join(", "));
    }
    if let Some(out) = &s.service {
        let waits = out.waits_for.as_deref().unwrap_or("the next look");
        say!(
            "out of service:  since {}, for {}; it returns after {waits}",
            UnixSeconds(out.since),
            out.why()
        );
    }
    for o in s.orders.iter().rev().take(SHOWN) {
        let detail = o.detail.as_deref().map_or(String::new(), |d| format!(": {d}"));
        say!("order:           {} {} {}{detail}", o.kind, o.status, ago(o.at));
    }
    for notice in &s.notices {
        say!("note:            {notice}");
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

pub(super) fn text_outages(outages: &Outages, now: u64) {
    for o in outages.iter().rev().take(SHOWN) {
        let end = o.until.unwrap_or(now);
        let lasted = end.saturating_sub(o.from);
        let state = if o.until.is_some() { "" } else { ", goes on" };
        say!(
            "not delivered:   from {} for {lasted} s: {} ({}{state})",
            UnixSeconds(o.from),
            o.code,
            counted(o.attempts, "attempt")
        );
    }
}
