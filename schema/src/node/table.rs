//! The whole lifecycle as a table: every state with every input. The committed copy is
//! `schema/vectors/lifecycle.md`; the diagram in the documentation is drawn from the same rows.

use std::collections::BTreeSet;

use super::lifecycle::{
    Context, ReportView, Silence, apply_report, deregister, drain, register, resume, step_silence,
};
use super::{HealthStatus, HotRecord, NodeState, Transition};
use crate::code::Code;
use crate::registry::Params;
use crate::report::{Body, Figures, MAX_AGE_SECONDS, MAX_AHEAD_SECONDS};
use crate::time::UnixSeconds;

/// One line: a situation, an input, and what comes of it.
#[derive(Debug, Clone)]
pub struct Row {
    /// Recorded state; `None` is UNKNOWN.
    pub state: Option<NodeState>,
    /// Whether a provider's drain is in force.
    pub drain: bool,
    /// The input, in words.
    pub input: String,
    /// State, drain and arrows after it, or the refusal; no record: still UNKNOWN.
    pub outcome: Outcome,
}

/// What comes of an input: record, arrows and notice, or the refusal.
pub type Outcome = Result<(Option<HotRecord>, Vec<Transition>, Option<Code>), Code>;

const NOW: u64 = 1_800_000_000;
const REGISTER: &str = "register";
const OF_SILENCE: &str = "s of silence";

fn record(state: NodeState, drain: bool, silent: u64, since: u64) -> HotRecord {
    let at = |ago: u64| u32::try_from(NOW.saturating_sub(ago)).unwrap_or(u32::MAX);
    HotRecord {
        sequence: 7,
        last_heartbeat: at(silent),
        state,
        status: Some(HealthStatus::Healthy),
        drain,
        has_jobs: true,
        since: if matches!(state, NodeState::Offline | NodeState::Deregistered) {
            at(since)
        } else {
            0
        },
        ..HotRecord::pending()
    }
}

/// Silence of a record that has just come into this state.
fn usual_silence(state: NodeState) -> u64 {
    match state {
        NodeState::Pending | NodeState::Active | NodeState::Draining | NodeState::Drained => 30,
        NodeState::Stale => 150,
        NodeState::Offline => 1_000,
        NodeState::Deregistered => 4_000,
    }
}

/// All rows, with the default parameters.
#[must_use]
pub fn rows() -> Vec<Row> {
    let params = Params::default();
    let now = UnixSeconds(NOW);
    let mut rows = Vec::new();
    for state in NodeState::ALL {
        for drained in [false, true] {
            // A deregistered node has no drain.
            if drained && state == NodeState::Deregistered {
                continue;
            }
            let silent = usual_silence(state);
            let base = record(state, drained, silent, silent.saturating_sub(300));
            let mut push = |input: String, outcome| {
                rows.push(Row {
                    state: Some(state),
                    drain: drained,
                    input,
                    outcome,
                });
            };
            push(REGISTER.to_owned(), Ok(with_notice(register(Some(base)))));
            report_rows(&base, &params, now, &mut push);
            silence_rows(state, drained, &params, now, &mut push);
            push("drain".to_owned(), drain(base, &params, now).map(with_notice));
            push("resume".to_owned(), resume(base, &params, now).map(with_notice));
            push("deregister".to_owned(), deregister(base, now).map(with_notice));
        }
    }
    let of_one_state = rows
        .iter()
        .filter(|r| (r.state, r.drain) == (Some(NodeState::Pending), false));
    let mut all: Vec<_> = of_one_state.map(|r| unknown(r.input.clone())).collect();
    all.append(&mut rows);
    all
}

fn with_notice(
    (record, transitions): (HotRecord, Vec<Transition>),
) -> (Option<HotRecord>, Vec<Transition>, Option<Code>) {
    (Some(record), transitions, None)
}

/// A node that is not on record: whatever names it is refused, and silence has nothing to step.
fn unknown(input: String) -> Row {
    let outcome = if input == REGISTER {
        Ok(with_notice(register(None)))
    } else if input.contains(OF_SILENCE) {
        Ok((None, Vec::new(), None))
    } else {
        Err(Code::UnknownNode)
    };
    Row {
        state: None,
        drain: false,
        input,
        outcome,
    }
}

fn report_rows(base: &HotRecord, params: &Params, now: UnixSeconds, push: &mut impl FnMut(String, Outcome)) {
    for status in HealthStatus::ALL {
        for running_count in [0, 1] {
            for (age, cluster_active) in [(0, true), (200, true), (0, false)] {
                let report = ReportView {
                    time: u32::try_from(now.0.saturating_sub(age)).unwrap_or(u32::MAX),
                    sequence: 8,
                    body: Body::saturating(
                        status,
                        &Figures {
                            running_count,
                            ..Figures::default()
                        },
                    ),
                };
                let ctx = Context {
                    now,
                    params,
                    cluster_active,
                };
                let outcome =
                    apply_report(*base, &report, &ctx).map(|a| (Some(a.record), a.transitions, a.notice));
                let jobs = if running_count > 0 { "jobs" } else { "no jobs" };
                let when = if age > 0 { ", 200 s old" } else { "" };
                let cluster = if cluster_active { "" } else { ", cluster inactive" };
                push(format!("report {status}, {jobs}{when}{cluster}"), outcome);
            }
        }
    }
    // A report within the window can be older than OFFLINE takes only where the thresholds are short.
    let short = Params {
        heartbeat_timeout: 60,
        offline_threshold: 120,
        ..params.clone()
    };
    let (late, early) = (MAX_AGE_SECONDS + 1, MAX_AHEAD_SECONDS + 1);
    for (what, sequence, time, params) in [
        (
            "with the sequence on record".to_owned(),
            base.sequence,
            now,
            params,
        ),
        ("with sequence 0".to_owned(), 0, now, params),
        (format!("{late} s old"), 8, now.minus(late), params),
        (format!("{early} s ahead"), 8, now.plus(early), params),
        (
            "200 s old, thresholds 60 s and 120 s".to_owned(),
            8,
            now.minus(200),
            &short,
        ),
    ] {
        let report = ReportView {
            time: u32::try_from(time.0).unwrap_or(u32::MAX),
            sequence,
            body: Body::saturating(HealthStatus::Healthy, &Figures::default()),
        };
        let ctx = Context {
            now,
            params,
            cluster_active: true,
        };
        let outcome = apply_report(*base, &report, &ctx).map(|a| (Some(a.record), a.transitions, a.notice));
        push(format!("report {what}"), outcome);
    }
}

fn silence_rows(
    state: NodeState,
    drained: bool,
    params: &Params,
    now: UnixSeconds,
    push: &mut impl FnMut(String, Outcome),
) {
    for silent in [120, 121, 300, 301, 3_600, 3_601] {
        let record = record(state, drained, silent, silent.saturating_sub(301));
        let step = |mode| Ok(with_notice(step_silence(record, params, now, mode)));
        push(
            format!("{silent} {OF_SILENCE}, neighbour"),
            step(Silence::Neighbour),
        );
        let drain_until = drained.then_some(now);
        push(
            format!("{silent} {OF_SILENCE}, sweep"),
            step(Silence::Sweep { drain_until }),
        );
        let drain_until = Some(now.plus(1));
        push(
            format!("{silent} {OF_SILENCE}, sweep, drain protects"),
            step(Silence::Sweep { drain_until }),
        );
    }
}

/// Every arrow that the rows take.
#[must_use]
pub fn arrows(rows: &[Row]) -> BTreeSet<Transition> {
    rows.iter()
        .filter_map(|row| row.outcome.as_ref().ok())
        .flat_map(|(_, taken, _)| taken.iter().copied())
        .collect()
}

fn name(state: Option<NodeState>) -> &'static str {
    state.map_or("unknown", NodeState::as_str)
}

/// The table as it is committed.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "# Lifecycle: every state with every input\n\nGenerated from the code with the default parameters; \
         the node ran jobs when its state was recorded.\n\n\
         | state | provider's drain | input | becomes | arrows |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let (becomes, arrows) = match &row.outcome {
            Err(code) => (format!("refused: `{code}`"), String::new()),
            Ok((record, taken, notice)) => {
                let drain = if record.is_some_and(|r| r.drain) {
                    " + drain"
                } else {
                    ""
                };
                let notice = notice
                    .map(|code| format!(", notice `{code}`"))
                    .unwrap_or_default();
                let arrows: Vec<_> = taken
                    .iter()
                    .map(|t| format!("{} → {} ({})", name(t.from), t.to, t.reason.as_str()))
                    .collect();
                (
                    format!("{}{drain}{notice}", name(record.map(|r| r.state))),
                    arrows.join(", "),
                )
            }
        };
        let drain = if row.drain { "yes" } else { "no" };
        out.push_str(&format!(
            "| {} | {drain} | {} | {becomes} | {arrows} |\n",
            name(row.state),
            row.input
        ));
    }
    out
}

/// The diagram, Mermaid: one line an arrow, its reasons joined.
#[must_use]
pub fn mermaid(rows: &[Row]) -> String {
    let mut out = String::from("stateDiagram-v2\n");
    let arrows: Vec<_> = arrows(rows).into_iter().collect();
    for group in arrows.chunk_by(|a, b| (a.from, a.to) == (b.from, b.to)) {
        let Some(first) = group.first() else { continue };
        let reasons: Vec<_> = group.iter().map(|t| t.reason.as_str()).collect();
        out.push_str(&format!(
            "    {} --> {}: {}\n",
            name(first.from),
            first.to,
            reasons.join(", ")
        ));
    }
    out
}
