//! The figures for people, and their targets.

use std::cmp::Ordering;

use anyhow::{Context, Result};
use serde_json::Value;

/// Above so many per cent of a CPU taken by others the machine counts as busy.
const BUSY: f64 = 15.0;

/// Above so many times the time between blocks the chain counts as standing still.
const SLOW: f64 = 2.0;

/// Above so many thousandths taken by the host it counts as well, and what it took looks like time of who ran.
const STOLEN: f64 = 10.0;

/// Thousandths as a number for people.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn thousandths(n: u64) -> f64 {
    n as f64 / 1000.0
}

/// Prints all figures, one a line, and whether others used the machine meanwhile.
///
/// # Errors
/// If they are no object.
pub fn print(figures: &Value) -> Result<()> {
    for (name, value) in figures.as_object().context("no figures")? {
        println!("{name:<34} {value:>12}");
    }
    if get(figures, "others_busy_percent") > BUSY {
        println!("the machine was busy with something else: rates by CPU time hold, latencies may not");
    }
    let slow = get(figures, "seconds_per_block") > get(figures, "block_s") * SLOW;
    if slow || get(figures, "blocks") < 1.0 {
        println!(
            "the chain hardly ran meanwhile: what the daemon does with it is not in the figures. Remedy: a longer run (--rounds, --heartbeats)"
        );
    }
    if get(figures, "stolen_permille") > STOLEN {
        println!("the host gave this machine's CPUs to others meanwhile: neither rates nor latencies hold");
    }
    for miss in misses(figures) {
        println!("beyond target: {miss}");
    }
    Ok(())
}

/// What misses its target.
#[must_use]
pub fn misses(figures: &Value) -> Vec<String> {
    let mut at_least = vec![("ratio", 0.5), ("handshakes_per_s_per_core", 3000.0)];
    if !is_alone(figures) {
        at_least.push(("go_ratio", 2.5));
    }
    let at_most = [("p99_ms", 5.0), ("rss_mb", 100.0)];
    // A figure that is missing misses its target.
    let order = |name, target: f64| get(figures, name).partial_cmp(&target);
    let low = at_least
        .iter()
        .filter(|(name, least)| order(name, *least).is_none_or(Ordering::is_lt));
    let high = at_most
        .iter()
        .filter(|(name, most)| order(name, *most).is_none_or(Ordering::is_gt));
    low.chain(high)
        .map(|(name, target)| format!("{name} is {}, target {target}", get(figures, name)))
        .collect()
}

/// Whether nothing was measured beside it, as was asked for.
fn is_alone(figures: &Value) -> bool {
    figures.get("alone").and_then(Value::as_bool).unwrap_or(false)
}

fn get(figures: &Value, name: &str) -> f64 {
    figures.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_figure_is_held_to_its_target() {
        let good = json!({"ratio": 0.5, "handshakes_per_s_per_core": 3000, "go_ratio": 2.5, "p99_ms": 5, "rss_mb": 100});
        assert!(misses(&good).is_empty());
        let bad = json!({"ratio": 0.49, "handshakes_per_s_per_core": 2999, "go_ratio": 2.4, "p99_ms": 5.1, "rss_mb": 101});
        assert_eq!(misses(&bad).len(), 5);
        assert_eq!(misses(&json!({})).len(), 5, "what is not measured");
        assert_eq!(misses(&json!({"alone": true})).len(), 4, "beside no other");
    }
}
