//! Samples that are kept.

use hpc_schema::time::UnixSeconds;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::output::{counted, say};
use crate::config::{Config, SamplingConfig};
use crate::history::{History, Sample, fields};
use crate::sample::Category;
use crate::state::{StateDir, Status};

pub(super) type Samples = (Category, Vec<Sample>);

/// UNIX seconds since which samples count: by the retention that the agent has in force, else by the configured one.
pub(super) fn oldest(status: Option<&Status>, config: Option<&Config>, now: u64) -> u64 {
    let in_force = status.and_then(|s| s.metrics_retention_seconds);
    let configured = || {
        let default = SamplingConfig::default().metrics_retention;
        config.map_or(default, |c| c.sampling.metrics_retention).as_secs()
    };
    now.saturating_sub(in_force.unwrap_or_else(configured))
}

/// Those that are not older than `oldest` (UNIX seconds).
pub(super) fn samples(state: &StateDir, oldest: u64) -> Result<Vec<Samples>, Failure> {
    let read = |c| {
        let all = History::read(&state.history(), c, oldest).map_err(|e| Failure::new(1, e))?;
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
    say!("\n{category:?}: {}", counted(samples.len(), "sample"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_retention_in_force_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        std::fs::create_dir(state.history()).unwrap();
        std::fs::write(
            state.history().join("temperature"),
            "0 1000 55 -\n1 90000 56 -\n2 99000 57 -\n",
        )
        .unwrap();
        let now = 100_000;
        let shown = |status: Option<&Status>| {
            let all = samples(&state, oldest(status, None, now)).unwrap();
            let of = all
                .into_iter()
                .find(|(c, _)| *c == Category::Temperature)
                .unwrap();
            of.1.iter().map(|s| s.at).collect::<Vec<_>>()
        };
        // A day, as long as nobody says anything else.
        assert_eq!(shown(None), [90_000, 99_000]);
        let in_force = |seconds| Status {
            metrics_retention_seconds: Some(seconds),
            ..Status::default()
        };
        assert_eq!(shown(Some(&in_force(3600))), [99_000]);
        assert_eq!(shown(Some(&in_force(100_000))), [1000, 90_000, 99_000]);
    }
}
