//! Samples that are kept.

use hpc_schema::time::UnixSeconds;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::output::say;
use crate::history::{History, Sample, fields};
use crate::sample::Category;
use crate::state::StateDir;

pub(super) type Samples = (Category, Vec<Sample>);

pub(super) fn samples(state: &StateDir) -> Result<Vec<Samples>, Failure> {
    let read = |c| {
        let all = History::read(&state.history(), c, 0).map_err(|e| Failure::new(1, e))?;
        Ok((c, all))
    };
    Category::ALL.into_iter().map(read).collect()
}

pub(super) fn json_samples(all: &[Samples]) -> Value {
    let rows = |(category, samples): &Samples| {
        let lines: Vec<Value> = samples
            .iter()
            .map(|s| {
                let named = fields(*category).iter().zip(&s.figures);
                let mut row: serde_json::Map<String, Value> =
                    named.map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
                row.insert("at".into(), json!(s.at));
                Value::Object(row)
            })
            .collect();
        let name = serde_json::to_value(category).ok()?;
        Some((name.as_str()?.to_owned(), Value::Array(lines)))
    };
    Value::Object(all.iter().filter_map(rows).collect())
}

pub(super) fn text_samples((category, samples): &Samples) {
    if samples.is_empty() {
        return;
    }
    say!("\n{category:?}: {} samples", samples.len());
    say!("{:<22}{}", "at", fields(*category).join("  "));
    for s in samples {
        let row: Vec<String> = fields(*category)
            .iter()
            .zip(&s.figures)
            .map(|(name, n)| {
                let shown = n.map_or_else(|| "-".to_owned(), |n| n.to_string());
                format!("{shown:>width$}", width = name.len())
            })
            .collect();
        say!("{:<22}{}", UnixSeconds(s.at).to_string(), row.join("  "));
    }
}
