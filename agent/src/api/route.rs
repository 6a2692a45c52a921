//! What each path answers.

use std::time::Instant;

use hpc_schema::task::VmId;
use hyper::Method;

use super::answer::{Answer, PATHS, Probe, SLICE, StatusAnswer};
use super::capacity::CapacityAnswer;
use super::metrics;
use super::openapi;
use super::source::Source;
use crate::clock::unix_seconds;
use crate::slice::statistics::Statistics;
use crate::status::{Trouble, judge};
use crate::task::TaskDir;

/// Older figures of a machine are none.
const FRESH: u64 = 60;

/// The machine that a path names.
fn slice_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/metrics/slices/")?;
    name.parse::<VmId>().ok().map(|_| name)
}

/// Answers a request that may be answered.
pub(super) fn answer(source: &Source, method: &Method, path: &str, now: Instant) -> Answer {
    let slice = slice_of(path);
    if slice.is_none() && !PATHS.iter().any(|(known, _)| *known == path && *known != SLICE) {
        let all = PATHS.map(|(path, _)| path).join(", ");
        return Answer::refused(404, "there is no such path", &format!("one of {all}"));
    }
    if method != Method::GET && method != Method::HEAD {
        return Answer::refused(405, "this interface is read-only", "GET or HEAD");
    }
    if let Some(vm) = slice {
        return of_slice(source, vm);
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

fn of_slice(source: &Source, vm: &str) -> Answer {
    let dir = source.tasks.as_deref().map(TaskDir::new);
    let all = dir.and_then(|d| Statistics::load(&d).ok()).unwrap_or_default();
    match all.machines.iter().find(|m| m.vm_name == vm) {
        Some(m) if m.at.saturating_add(FRESH) >= unix_seconds() => Answer::metrics(metrics::slice(m)),
        Some(_) => Answer::refused(
            503,
            "libvirt has said nothing of this machine for a minute",
            "look whether the task agent and libvirtd run",
        ),
        None => Answer::refused(
            404,
            "there is no such slice's machine here",
            "virtengine-node-agent tasks list",
        ),
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
