use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hpc_schema::task::{MAX_TASK_PARAMS_BYTES, TaskState, catalogue};
use serde_json::json;
use tokio::time::Instant;

use super::args::{SubmitArgs, TaskCommand, WhichTask};
use super::desk::Desk;
use super::output::{self, Output, or_dash};
use crate::admin::{Admin, Seen, Submission, TaskFull};
use crate::clock;
use crate::config::Span;
use crate::task::{Approval, TaskRow};

/// Who watches a task is answered once there is news of it, and after this without.
const LOOK: Duration = Duration::from_secs(20);

pub(super) async fn run(desk: &Desk, what: TaskCommand, out: Output) -> anyhow::Result<()> {
    match what {
        TaskCommand::Submit(args) => submit(desk, &args, out).await,
        TaskCommand::List {
            node_id,
            state,
            limit,
        } => list(&desk.tasks(node_id.as_ref(), state, limit).await?, out),
        TaskCommand::Show(which) => out.value(&desk.task_full(&which).await?),
        TaskCommand::Watch { which, within } => watch(desk, &which, within).await,
        TaskCommand::Cancel(which) => {
            let state = desk.cancel_task(&which).await?;
            let text = match state {
                TaskState::Cancelled => "the task is taken back",
                _ => "the node is told to end the task; task watch shows how it ends",
            };
            out.done(text, &json!({ "task_id": which.task_id, "state": state }))
        }
        TaskCommand::Approve(which) => {
            let row = desk.approve_task(&which).await?;
            out.done(
                &format!("task {} of {} is approved", row.task_id, row.node_id),
                &row,
            )
        }
        // Of the directory alone, and of no store: done before there is a desk.
        TaskCommand::Prove { .. } | TaskCommand::Catalog => Ok(()),
    }
}

/// A golden file of the schema: JSON, unless YAML is asked for.
pub(super) fn catalog(out: Output) -> anyhow::Result<()> {
    if out.is_text() {
        return output::line(&serde_json::to_string_pretty(&catalogue())?);
    }
    out.value(&catalogue())
}

async fn submit(desk: &Desk, args: &SubmitArgs, out: Output) -> anyhow::Result<()> {
    let params = given("--params", &args.params)?;
    let submission = Submission {
        task_id: args.task_id.as_ref(),
        node_id: &args.whose.node_id,
        cluster_id: args.whose.cluster_id.as_ref(),
        kind: args.kind,
        params: params.trim(),
        expires_seconds: args.expires.as_secs(),
    };
    let row = desk.submit_task(&submission).await?;
    out.done(row.task_id.as_str(), &row)
}

/// What an argument gives: itself, or a file, or standard input.
pub(super) fn given(flag: &str, argument: &str) -> anyhow::Result<String> {
    let Some(path) = argument.strip_prefix('@') else {
        return Ok(argument.to_owned());
    };
    let from: Box<dyn std::io::Read> = match path {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::fs::File::open(path).with_context(|| format!("{flag} @{path}"))?),
    };
    let mut text = String::new();
    let limit = u64::try_from(MAX_TASK_PARAMS_BYTES).unwrap_or(u64::MAX);
    from.take(limit.saturating_add(2))
        .read_to_string(&mut text)
        .with_context(|| format!("{flag} @{path}"))?;
    Ok(text)
}

/// From the directory's own store: a proof has as many rows as the log has between a result and its anchor.
pub(super) async fn prove(
    admin: &Admin,
    which: &WhichTask,
    file: Option<&Path>,
    out: Output,
) -> anyhow::Result<()> {
    let proof = admin
        .prove_task(&which.task_id, which.cluster_id.as_ref())
        .await?;
    // Always JSON: this is a file, whatever answers look like.
    let text = serde_json::to_string_pretty(&proof)?;
    let Some(path) = file else {
        return output::line(&text);
    };
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    let path = path.display().to_string();
    let said = format!("{path} proves how the task ended; check it with: virtengine query hpc proof {path}");
    out.done(&said, &json!({ "file": path, "task_id": which.task_id }))
}

fn list(rows: &[TaskRow], out: Output) -> anyhow::Result<()> {
    let head = [
        "ID", "NODE", "TYPE", "STATE", "PHASE", "BY", "ISSUED", "EXPIRES", "CODE",
    ];
    out.list(rows, &head, |r| {
        let state = match r.approval {
            Approval::Waiting if r.state == TaskState::Queued => "queued, waits for approval".to_owned(),
            _ => r.state.to_string(),
        };
        vec![
            r.task_id.to_string(),
            r.node_id.to_string(),
            r.kind.to_string(),
            state,
            or_dash(r.phase.as_ref()),
            r.submitted_by.clone(),
            r.issued_at.to_string(),
            r.expires_at.to_string(),
            or_dash(r.code.as_ref()),
        ]
    })
}

async fn watch(desk: &Desk, which: &WhichTask, within: Span) -> anyhow::Result<()> {
    let end = Instant::now() + within.duration();
    let mut seen = Seen::default();
    loop {
        let left = end.saturating_duration_since(Instant::now()).min(LOOK);
        let TaskFull { row, progress } = desk.wait_task(which, seen, left).await?;
        for event in progress {
            seen.progress = event.n + 1;
            let message = event.message.as_deref().unwrap_or_default();
            output::line(format!("{}  {}  {message}", event.at, event.phase).trim_end())?;
        }
        if seen.state != Some(row.state) {
            seen.state = Some(row.state);
            output::line(&format!("{}  {}", clock::now(), row.state))?;
        }
        if row.state == TaskState::Completed {
            return Ok(());
        }
        if row.state.is_end() {
            let (code, detail) = (or_dash(row.code.as_ref()), or_dash(row.detail.as_ref()));
            bail!("the task is {}: {code}: {detail}", row.state);
        }
        if Instant::now() >= end {
            bail!("the task is still {}", row.state);
        }
    }
}
