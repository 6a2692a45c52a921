//! What each path answers.

use std::time::Instant;

use hyper::Method;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Answer;
use super::capacity::CapacityAnswer;
use super::metrics;
use super::openapi;
use super::source::Source;
use crate::clock::unix_seconds;
use crate::state::Status;
use crate::status::{Trouble, judge};

/// `/healthz` and `/readyz`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Probe {
    /// `ok`, or what is missing.
    pub(super) status: &'static str,
    /// What is wrong, each with its remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<Trouble>,
}

/// `/v1/status`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StatusAnswer {
    /// Nothing is wrong.
    pub(super) healthy: bool,
    /// What is, each with its remedy.
    pub(super) problems: Vec<Trouble>,
    /// How the agent is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
}

/// Every path, and what it says.
pub(super) const PATHS: [(&str, &str); 6] = [
    ("/healthz", "Whether the agent's loop turns"),
    (
        "/readyz",
        "Whether the node is registered and its heartbeats are accepted",
    ),
    ("/v1/capacity", "What this host is and has"),
    ("/v1/status", "How the agent is doing"),
    ("/metrics", "Figures in Prometheus' text format"),
    ("/openapi.json", "This interface"),
];

/// Answers a request that may be answered.
pub(super) fn answer(source: &Source, method: &Method, path: &str, now: Instant) -> Answer {
    if !PATHS.iter().any(|(known, _)| *known == path) {
        let all = PATHS.map(|(path, _)| path).join(", ");
        return Answer::refused(404, "there is no such path", &format!("one of {all}"));
    }
    if method != Method::GET && method != Method::HEAD {
        return Answer::refused(405, "this interface is read-only", "GET or HEAD");
    }
    match path {
        "/healthz" => health(source, now),
        "/readyz" => ready(source),
        "/v1/capacity" => capacity(source, now),
        "/v1/status" => Answer::json(200, &status(source)),
        "/metrics" => Answer::metrics(metrics::page(source, now, unix_seconds())),
        _ => Answer::json(200, &openapi::document()),
    }
}

fn health(source: &Source, now: Instant) -> Answer {
    match source.hangs(now) {
        None => Answer::json(
            200,
            &Probe {
                status: "ok",
                problems: Vec::new(),
            },
        ),
        Some(silent) => {
            let trouble = Trouble::new(
                "agent_hangs",
                format!("the agent's loop has not turned for {} s", silent.as_secs()),
                "restart it: systemctl restart virtengine-node-agent",
            );
            Answer::json(
                503,
                &Probe {
                    status: "hangs",
                    problems: vec![trouble],
                },
            )
        }
    }
}

/// Troubles of the node itself do not count: they reach the provider.
const OF_THE_NODE: [&str; 2] = ["node_health", "clock_skew"];

fn ready(source: &Source) -> Answer {
    let mut problems = status(source).problems;
    problems.retain(|t| !OF_THE_NODE.contains(&t.code.as_str()));
    let accepted = source.status().is_some_and(|s| s.last_accepted_at.is_some());
    if problems.is_empty() && accepted {
        return Answer::json(
            200,
            &Probe {
                status: "ok",
                problems,
            },
        );
    }
    Answer::json(
        503,
        &Probe {
            status: "not ready",
            problems,
        },
    )
}

fn status(source: &Source) -> StatusAnswer {
    let status = source.status();
    let verdict = judge(status.as_ref(), source.running(), unix_seconds());
    StatusAnswer {
        healthy: verdict.healthy,
        problems: verdict.problems,
        status,
    }
}

fn capacity(source: &Source, now: Instant) -> Answer {
    let view = source.view();
    let answer = view.and_then(|v| CapacityAnswer::new(source, &v, source.status().as_ref(), now));
    match answer {
        Some(answer) => Answer::json(200, &answer),
        None => Answer::refused(
            503,
            "cores and memory are not measured yet",
            "ask again in a few seconds; virtengine-node-agent status says what the agent waits for",
        ),
    }
}
