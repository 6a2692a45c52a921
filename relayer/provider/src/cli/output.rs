use std::fmt::Display;
use std::io::Write as _;

use clap::ValueEnum;
use hpc_schema::time::UnixSeconds;
use serde::Serialize;
use serde_yaml_ng::Value;

/// How answers are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Writes answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output(pub(super) Format);

/// An answer that could not be written, as to a full disk.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
pub(super) struct Unwritten(#[source] pub(super) std::io::Error);

/// One line on standard output.
pub(super) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.map_err(Unwritten)?),
    }
}

/// An error with its causes, each once: some name theirs themselves.
pub(super) fn words(e: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// What is there, or a dash.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// Members that hold what was signed: shown as they are.
const SIGNED: [&str; 4] = ["params", "parameters", "result", "report"];

/// By its name; of what is no moment but a length of time the number is too small.
fn is_time(member: &str) -> bool {
    ["_at", "_ms", "_until"].iter().any(|end| member.ends_with(end))
        || ["at", "deadline", "last_heartbeat", "not_after", "time", "until"].contains(&member)
}

/// RFC 3339 of UNIX seconds or milliseconds, as a number or as text; none of what is no time since 2001.
fn rfc3339(value: &Value) -> Option<String> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    let seconds = match number {
        1_000_000_000..100_000_000_000 => number,
        1_000_000_000_000.. => number / 1_000,
        _ => return None,
    };
    Some(UnixSeconds(seconds).to_string())
}

/// Writes times for people, who read YAML; JSON has them as documented.
fn with_dates(value: &mut Value) {
    match value {
        Value::Mapping(members) => {
            for (member, value) in members {
                let member = member.as_str().unwrap_or_default();
                if SIGNED.contains(&member) {
                    continue;
                }
                match rfc3339(value).filter(|_| is_time(member)) {
                    Some(date) => *value = Value::String(date),
                    None => with_dates(value),
                }
            }
        }
        Value::Sequence(items) => items.iter_mut().for_each(with_dates),
        _ => {}
    }
}

/// What JSON says, as YAML: of what is kept as the bytes that were signed (parameters, results) serde would tell YAML its
/// mark and one text.
fn yaml<T: Serialize>(value: &T) -> anyhow::Result<String> {
    let json = serde_json::to_string(value)?;
    let text = match serde_json::from_str::<Value>(&json) {
        Ok(mut plain) => {
            with_dates(&mut plain);
            serde_yaml_ng::to_string(&plain)
        }
        // A node may have signed what is no such value, as an object with a member twice.
        Err(_) => serde_yaml_ng::to_string(value),
    };
    Ok(text?)
}

/// The lines of a table.
pub(super) fn table<T>(items: &[T], head: &[&str], row: impl Fn(&T) -> Vec<String>) -> Vec<String> {
    let mut rows = vec![head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
    rows.extend(items.iter().map(row));
    let mut widths = vec![0; head.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

impl Output {
    pub(super) fn is_text(self) -> bool {
        self.0 == Format::Text
    }

    /// A record; as text it is YAML, which people read as well.
    pub(super) fn value<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = match self.0 {
            Format::Json => serde_json::to_string_pretty(value)?,
            Format::Text | Format::Yaml => yaml(value)?,
        };
        line(text.trim_end())
    }

    /// A record on one line of JSON, or a YAML document of its own; fails when nobody reads any more.
    pub(super) fn compact<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = match self.0 {
            Format::Json => serde_json::to_string(value)?,
            Format::Text | Format::Yaml => format!("---\n{}", yaml(value)?.trim_end()),
        };
        Ok(writeln!(std::io::stdout().lock(), "{text}").map_err(Unwritten)?)
    }

    /// A list: a table as text.
    pub(super) fn list<T: Serialize>(
        self,
        items: &[T],
        head: &[&str],
        row: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        if !self.is_text() {
            return self.value(&items);
        }
        table(items, head, row).iter().try_for_each(|l| line(l))
    }

    /// What was done: a sentence as text, else the record.
    pub(super) fn done<T: Serialize>(self, text: &str, value: &T) -> anyhow::Result<()> {
        if self.is_text() {
            line(text)
        } else {
            self.value(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Serialize)]
    struct Kept {
        task_id: &'static str,
        params: Box<RawValue>,
        result: Option<Box<RawValue>>,
        attempts: u64,
    }

    fn kept(params: &str) -> Kept {
        Kept {
            task_id: "t001",
            params: RawValue::from_string(params.to_owned()).unwrap(),
            result: None,
            attempts: 1,
        }
    }

    #[test]
    fn yaml_shows_what_is_kept_as_bytes_as_values_and_keeps_the_order() {
        let shown = yaml(&kept(r#"{"slots": [1, "1"], "most": 18446744073709551615}"#)).unwrap();
        assert_eq!(
            shown,
            "task_id: t001\nparams:\n  slots:\n  - 1\n  - '1'\n  most: 18446744073709551615\nresult: null\nattempts: 1\n"
        );
        assert!(yaml(&kept("{}")).unwrap().contains("params: {}\n"));
    }

    #[test]
    fn a_cause_is_named_once() {
        let cause = || anyhow::anyhow!("No such file (os error 2)");
        assert_eq!(
            words(&cause().context("a.csv: No such file (os error 2)")),
            "a.csv: No such file (os error 2)"
        );
        let e = cause().context("a.csv").context("tokens");
        assert_eq!(words(&e), "tokens: a.csv: No such file (os error 2)");
    }

    #[test]
    fn yaml_shows_dates_and_leaves_what_was_signed_as_it_is() {
        let shown = yaml(&serde_json::json!({
            "issued_at": 1_795_811_770u64,
            "told_at": null,
            "event": { "time": "1795811770", "until": "soon", "height": "1795811770" },
            "reports": [{ "ended_at": 1_795_811_855_895u64, "sequence": 7 }],
            "began_ms": 1_795_811_855_895u64,
            "latency_ms": 30,
            "not_after": 1_795_811_770u64,
            "params": { "time": 1_795_811_770u64 },
            "time": 30,
        }))
        .unwrap();
        for line in [
            "issued_at: 2026-11-27T20:36:10Z",
            "told_at: null",
            "time: 2026-11-27T20:36:10Z",
            "until: soon",
            "height: '1795811770'",
            "ended_at: 2026-11-27T20:37:35Z",
            "began_ms: 2026-11-27T20:37:35Z",
            "latency_ms: 30",
            "not_after: 2026-11-27T20:36:10Z",
            "time: 1795811770",
            "time: 30",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }

    #[test]
    fn what_a_node_signed_is_shown_even_where_it_is_no_value_of_yaml() {
        for odd in [r#"{"a":1,"a":2}"#, r#"{"a":1e999}"#] {
            let shown = yaml(&kept(odd)).unwrap();
            assert!(shown.contains(odd), "{shown}");
        }
    }
}
