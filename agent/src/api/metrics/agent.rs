//! The agent itself: its judgement, its heartbeats.

use hpc_schema::heartbeat::HealthStatus;

use super::{Kind, Number, Page, label};
use crate::api::board::View;
use crate::state::Status;

pub(super) fn health(page: &mut Page, view: &View) {
    let all = [
        HealthStatus::Healthy,
        HealthStatus::Degraded,
        HealthStatus::Unhealthy,
        HealthStatus::Draining,
    ];
    page.family(
        Kind::Gauge,
        "virtengine_node_health",
        "The node's judgement of itself: 1 for the one that it is.",
        all.map(|h| (vec![label("status", h.as_str())], Number::flag(h == view.health))),
    );
    let mut codes: Vec<&str> = view.findings.iter().map(|f| f.kind.code).collect();
    codes.sort_unstable();
    codes.dedup();
    page.family(
        Kind::Gauge,
        "virtengine_node_finding",
        "Findings of the catalogue (docs/agent-health.md) that hold now.",
        codes
            .into_iter()
            .map(|c| (vec![label("code", c)], Number::whole(1))),
    );
}

pub(super) fn heartbeats(page: &mut Page, status: Option<&Status>) {
    page.family(
        Kind::Gauge,
        "virtengine_agent_info",
        "Version of the agent.",
        [(
            vec![label("version", env!("CARGO_PKG_VERSION"))],
            Number::whole(1),
        )],
    );
    let Some(s) = status else { return };
    for (name, help, n) in [
        (
            "virtengine_agent_heartbeats_accepted_total",
            "Heartbeats that a gateway has accepted since the start.",
            s.accepted,
        ),
        (
            "virtengine_agent_heartbeats_failed_total",
            "Heartbeats that failed or were refused since the start.",
            s.failed,
        ),
    ] {
        page.one(Kind::Counter, name, help, Some(Number::whole(n)));
    }
    let gauges = [
        (
            "virtengine_agent_start_time_seconds",
            "When the agent was started, in unixtime.",
            Some(Number::whole(s.started_at)),
        ),
        (
            "virtengine_agent_heartbeat_sequence",
            "Sequence number of the last heartbeat.",
            Some(Number::whole(s.sequence)),
        ),
        (
            "virtengine_agent_settled_sequence",
            "Sequence number of the last report on chain.",
            s.chain.as_ref().map(|c| Number::whole(c.settled_sequence)),
        ),
        (
            "virtengine_agent_last_accepted_time_seconds",
            "When a heartbeat was last accepted, in unixtime.",
            s.last_accepted_at.map(Number::whole),
        ),
        (
            "virtengine_agent_heartbeat_interval_seconds",
            "Between two heartbeats, as agreed with the gateway.",
            Some(Number::whole(s.interval_seconds)),
        ),
        (
            "virtengine_agent_gateway_latency_seconds",
            "Round trip of the last heartbeat.",
            s.gateway_latency_us.map(|us| Number::scaled(us, 6)),
        ),
        (
            "virtengine_agent_clock_skew_seconds",
            "The gateway's clock minus this one.",
            s.clock_skew_ms.map(|ms| Number::scaled(ms, 3)),
        ),
        (
            "virtengine_agent_certificate_expiry_time_seconds",
            "Until when the client certificate is valid, in unixtime.",
            s.certificate.as_ref().map(|c| Number::whole(c.not_after)),
        ),
    ];
    for (name, help, value) in gauges {
        page.one(Kind::Gauge, name, help, value);
    }
}
