use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hpc_schema::task::{MAX_TASK_PARAMS_BYTES, TaskState, catalogue};
use serde_json::json;

use super::args::{SubmitArgs, TaskCommand, WhichTask};
use super::output::{self, Output, or_dash};
use super::who;
use crate::admin::{Admin, Submission};
use crate::clock;
use crate::config::Span;
use crate::task::{self, Approval, TaskRow};

/// How often a task is looked at by who watches it from the command line.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) async fn run(desk: &Admin, what: TaskCommand, out: Output) -> anyhow::Result<()> {
    match what {
        TaskCommand::Submit(args) => submit(desk, &args, out).await,
        TaskCommand::List {
            node_id,
            state,
            limit,
        } => list(&desk.tasks(node_id.as_ref(), state, limit).await?, out),
        TaskCommand::Show(which) => {
            out.value(&desk.task_full(&which.task_id, which.cluster_id.as_ref()).await?)
        }
        TaskCommand::Watch { which, within } => watch(desk, &which, within).await,
        TaskCommand::Cancel(which) => {
            let state = desk
                .cancel_task(&who(), &which.task_id, which.cluster_id.as_ref())
                .await?;
            let text = match state {
                TaskState::Cancelled => "the task is taken back",
                _ => "the node is told to end the task; task watch shows how it ends",
            };
            out.done(text, &json!({ "task_id": which.task_id, "state": state }))
        }
        TaskCommand::Approve(which) => {
            let row = desk
                .approve_task(&who(), &which.task_id, which.cluster_id.as_ref())
                .await?;
            out.done(
                &format!("task {} of {} is approved", row.task_id, row.node_id),
                &row,
            )
        }
        TaskCommand::Catalog => catalog(out),
    }
}

/// A golden file of the schema: JSON, unless YAML is asked for.
pub(super) fn catalog(out: Output) -> anyhow::Result<()> {
    if out.is_text() {
        return output::line(&serde_json::to_string_pretty(&catalogue())?);
    }
    out.value(&catalogue())
}

async fn submit(desk: &Admin, args: &SubmitArgs, out: Output) -> anyhow::Result<()> {
    let params = given("--params", &args.params)?;
    let submission = Submission {
        task_id: args.task_id.as_ref(),
        node_id: &args.whose.node_id,
        cluster_id: args.whose.cluster_id.as_ref(),
        kind: args.kind,
        params: params.trim(),
        expires_seconds: args.expires.as_secs(),
    };
    let row = desk.submit_task(&who(), &submission).await?;
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

async fn watch(desk: &Admin, which: &WhichTask, within: Span) -> anyhow::Result<()> {
    let (id, cluster) = (&which.task_id, which.cluster_id.as_ref());
    let end = tokio::time::Instant::now() + within.duration();
    let (mut next, mut before) = (0, None);
    loop {
        let row = desk.task(id, cluster).await?;
        for event in task::progress_of(desk.store.reader(), &row.cluster_id, id, next).await? {
            next = event.n + 1;
            let message = event.message.as_deref().unwrap_or_default();
            output::line(format!("{}  {}  {message}", event.at, event.phase).trim_end())?;
        }
        if before != Some(row.state) {
            before = Some(row.state);
            output::line(&format!("{}  {}", clock::now(), row.state))?;
        }
        if row.state == TaskState::Completed {
            return Ok(());
        }
        if row.state.is_end() {
            let (code, detail) = (or_dash(row.code.as_ref()), or_dash(row.detail.as_ref()));
            bail!("the task is {}: {code}: {detail}", row.state);
        }
        if tokio::time::Instant::now() >= end {
            bail!("the task is still {}", row.state);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
