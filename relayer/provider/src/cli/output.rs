use std::fmt::Display;
use std::io::Write as _;

use clap::ValueEnum;
use serde::Serialize;

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

/// One line on standard output.
pub(super) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// What is there, or a dash.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
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
            Format::Text | Format::Yaml => serde_yaml_ng::to_string(value)?,
        };
        line(text.trim_end())
    }

    /// A record on one line of JSON, or a YAML document of its own; fails when nobody reads any more.
    pub(super) fn compact<T: Serialize>(self, value: &T) -> anyhow::Result<()> {
        let text = match self.0 {
            Format::Json => serde_json::to_string(value)?,
            Format::Text | Format::Yaml => format!("---\n{}", serde_yaml_ng::to_string(value)?.trim_end()),
        };
        Ok(writeln!(std::io::stdout().lock(), "{text}")?)
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
