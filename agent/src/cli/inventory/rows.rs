//! One figure as `inventory` shows it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::sample::Figure;

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
