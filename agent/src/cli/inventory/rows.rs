//! One figure as `inventory` shows it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::sample::{Category, Figure};

/// Adds a figure by its name; what is too old is absent.
pub(super) fn row<T>(
    rows: &mut Vec<Value>,
    now: Instant,
    name: &str,
    figure: &Figure<T>,
    show: impl Fn(&T) -> Value,
) {
    rows.push(json!({
        "name": name,
        "value": figure.fresh(now).map(show),
        "source": figure.source(),
        "category": figure.category(),
        "age_ms": figure.age(now).and_then(|a| u64::try_from(a.as_millis()).ok()),
    }));
}

/// A figure that somebody else has measured: its value and age in milliseconds, or why it is absent.
pub(super) fn told(
    name: &str,
    source: &str,
    category: Category,
    said: Result<(Value, u64), String>,
) -> Value {
    let (value, age_ms, reason) = match said {
        Ok((value, age_ms)) => (value, Some(age_ms), None),
        Err(why) => (Value::Null, None, Some(why)),
    };
    let mut row =
        json!({"name": name, "value": value, "source": source, "category": category, "age_ms": age_ms});
    if let (Some(row), Some(why)) = (row.as_object_mut(), reason) {
        row.insert("reason".to_owned(), why.into());
    }
    row
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::Figures;

    #[test]
    fn the_age_of_a_figure_grows_and_its_value_is_absent_beyond_its_bound() {
        let (mut figures, start) = (Figures::default(), Instant::now());
        let mut rows = Vec::new();
        row(&mut rows, start, "CPU busy %", &figures.cpu, |v| json!(v));
        figures.cpu.set(Some(40), start);
        for ms in [0, 250, 30_000, 30_001] {
            let now = start + Duration::from_millis(ms);
            row(&mut rows, now, "CPU busy %", &figures.cpu, |v| json!(v));
        }
        let shown: Vec<_> = rows
            .iter()
            .map(|r| (r["value"].as_u64(), r["age_ms"].as_u64()))
            .collect();
        let expected = [
            (None, None),
            (Some(40), Some(0)),
            (Some(40), Some(250)),
            (Some(40), Some(30_000)),
            (None, Some(30_001)),
        ];
        assert_eq!(shown, expected);
        assert!(rows.iter().all(|r| r["source"] == "/proc/stat"));
    }
}
