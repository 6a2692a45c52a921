use std::io::Write as _;

use serde::Serialize;

use super::args::Format;

/// One line on standard output.
pub(super) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A record; as text it is YAML, which people read as well.
pub(super) fn value<T: Serialize>(value: &T, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Text | Format::Yaml => serde_yaml_ng::to_string(value)?,
    };
    line(text.trim_end())
}

/// A list: a table as text.
pub(super) fn list<T: Serialize>(
    items: &[T],
    format: Format,
    head: &[&str],
    row: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    if format != Format::Text {
        return value(&items, format);
    }
    let mut rows = vec![head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
    rows.extend(items.iter().map(row));
    let mut widths = vec![0; head.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        line(cells.join("  ").trim_end())?;
    }
    Ok(())
}
