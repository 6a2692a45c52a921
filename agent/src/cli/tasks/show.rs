//! What is on record here, and how the host looks.

use std::process::ExitCode;

use hpc_schema::task::CheckStatus;

use super::super::output::{print, say};
use super::super::{ConfigArguments, Failure, Format};
use super::dir;
use crate::task::journal::load_all;

pub(super) fn list(arguments: &ConfigArguments, output: Format) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let journals = load_all(&dir(&config)?.journal(), false).map_err(|e| Failure::new(1, e))?;
    let rows: Vec<serde_json::Value> = journals
        .iter()
        .map(|journal| match journal {
            Ok(journal) => {
                let story = journal.story();
                serde_json::json!({
                    "task_id": story.task.task_id, "type": story.task.task_type, "taken_at": story.taken_at,
                    "state": story.ended.as_ref().map_or("running", |e| e.outcome.as_str()),
                    "code": story.ended.as_ref().and_then(|e| e.code.clone()),
                    "holds": story.holds().map(ToString::to_string),
                    "left": if story.is_residue() { story.findings() } else { Vec::new() },
                    "effects_left": story.steps.iter().filter(|s| s.remains()).count(),
                    "heard": story.heard,
                })
            }
            Err(e) => serde_json::json!({"damaged": e.to_string()}),
        })
        .collect();
    if output != Format::Text {
        return print(&serde_json::Value::Array(rows), output);
    }
    for row in rows {
        let text = |name: &str| row.get(name).and_then(|v| v.as_str()).unwrap_or("-").to_owned();
        match row.get("damaged") {
            Some(_) => say!("damaged: {}", text("damaged")),
            None => say!(
                "{}  {}  {}  {}  {}",
                text("task_id"),
                text("type"),
                text("state"),
                text("code"),
                text("holds")
            ),
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn probe(arguments: &ConfigArguments, output: Format) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let probed = crate::task::handlers::probe(&config.roots, None);
    let shown = serde_json::to_value(&probed).map_err(|e| Failure::new(1, e))?;
    if output == Format::Text {
        for check in shown
            .get("checks")
            .and_then(|c| c.as_array())
            .into_iter()
            .flatten()
        {
            let word = |name: &str| check.get(name).and_then(|v| v.as_str()).unwrap_or_default();
            say!("{:<7} {:<7} {}", word("status"), word("check"), word("detail"));
        }
    } else {
        print(&shown, output)?;
    }
    Ok(if probed.status == CheckStatus::Fail {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
