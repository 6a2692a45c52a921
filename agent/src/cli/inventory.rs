use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::output::print;
use super::{ConfigArguments, Failure, Format, runtime};
use crate::config::Reserve;
use crate::heartbeat::{Held, capacity, judge};
use crate::probe::{Roots, fingerprint};
use crate::sample::{Category, Figure, Sampler, standard};

/// `inventory`.
#[derive(Debug, Args)]
pub(super) struct Inventory {
    #[command(flatten)]
    config: ConfigArguments,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Utilisation needs two looks; the second one after this.
const BETWEEN: Duration = Duration::from_secs(1);
const BUDGET: Duration = Duration::from_secs(3);

impl Inventory {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // Works before there is a configuration: what would this node report?
        let (roots, storage, reserve) = if self.config.config.exists() {
            let c = self.config.load()?;
            (c.roots, c.storage_path, c.reserve)
        } else {
            (Roots::default(), "/".into(), Reserve::default())
        };
        let mut sampler = Sampler::new(standard(&roots, storage));
        runtime()?.block_on(async {
            sampler.sample(|_| true, BUDGET).await;
            tokio::time::sleep(BETWEEN).await;
            sampler.sample(|c| c == Category::Utilization, BUDGET).await;
        });
        let value = describe(&sampler, &roots, reserve);
        match self.output {
            Format::Text => text(&value),
            format => {
                print(&value, format)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(sampler: &Sampler, roots: &Roots, reserve: Reserve) -> Value {
    let now = Instant::now();
    let f = sampler.figures();
    let mut rows = Vec::new();
    row(&mut rows, now, "cores online", &f.cores, |v| json!(v));
    row(
        &mut rows,
        now,
        "memory bytes",
        &f.memory,
        |m| json!({"total": m.total, "available": m.available}),
    );
    row(
        &mut rows,
        now,
        "storage bytes",
        &f.storage,
        |s| json!({"total": s.total, "available": s.available, "used": s.used}),
    );
    row(&mut rows, now, "GPUs on the bus", &f.pci_gpus, |v| json!(v));
    row(&mut rows, now, "load average", &f.load, |l| {
        json!([decimal(l.one), decimal(l.five), decimal(l.fifteen)])
    });
    row(&mut rows, now, "uptime seconds", &f.uptime, |v| json!(v));
    row(&mut rows, now, "pressure 60 s", &f.pressure, |all| {
        let each = all.iter().map(|p| {
            let percent = |n: u64| format!("{}.{:02} %", n / 100, n % 100);
            (
                p.resource.to_owned(),
                json!({"some": percent(p.some), "full": p.full.map(percent)}),
            )
        });
        Value::Object(each.collect())
    });
    row(&mut rows, now, "CPU busy %", &f.cpu, |v| json!(v));
    row(
        &mut rows,
        now,
        "busiest disk %",
        &f.disk,
        |d| json!({"device": d.device, "percent": d.percent}),
    );
    row(
        &mut rows,
        now,
        "busiest link %",
        &f.network,
        |n| json!({"device": n.device, "percent": n.percent}),
    );
    row(&mut rows, now, "CPU temperature °C", &f.temperature, |v| {
        json!(v)
    });
    let stuck: Vec<&str> = sampler.stuck().iter().map(|s| s.name).collect();
    let (health, findings) = judge(f, &stuck, now);
    let fingerprint = fingerprint::read(roots);
    json!({
        "figures": rows,
        "capacity": capacity(f, Held::default(), reserve, now),
        "health": health.as_str(),
        "findings": findings.iter().map(|f| format!("{}: {}", f.code, f.message)).collect::<Vec<_>>(),
        "hardware_fingerprint": fingerprint.as_ref().map(|f| &f.value),
        "fingerprint_sources": fingerprint.as_ref().map(|f| f.sources.keys().collect::<Vec<_>>()),
    })
}

fn row<T>(rows: &mut Vec<Value>, now: Instant, name: &str, figure: &Figure<T>, show: impl Fn(&T) -> Value) {
    rows.push(json!({
        "name": name,
        "value": figure.fresh(now).map(show),
        "source": figure.source(),
        "category": figure.category(),
        "age_ms": figure.age(now).and_then(|a| u64::try_from(a.as_millis()).ok()),
    }));
}

fn decimal(millionths: u64) -> String {
    format!(
        "{}.{:02}",
        millionths / 1_000_000,
        millionths % 1_000_000 / 10_000
    )
}

fn text(value: &Value) {
    println!("{:<20} {:<56} {:>8}  SOURCE", "FIGURE", "VALUE", "AGE");
    for row in value
        .get("figures")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
        let shown = match row.get("value") {
            None | Some(Value::Null) => "absent".to_owned(),
            Some(v) => v
                .to_string()
                .replace(['"', '{', '}'], "")
                .replace(',', ", ")
                .replace(':', " "),
        };
        let age = row
            .get("age_ms")
            .and_then(Value::as_u64)
            .map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        println!("{:<20} {shown:<56} {age:>8}  {}", word("name"), word("source"));
    }
    for key in [
        "health",
        "findings",
        "hardware_fingerprint",
        "fingerprint_sources",
        "capacity",
    ] {
        if let Some(v) = value
            .get(key)
            .filter(|v| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty()))
        {
            let shown = v
                .to_string()
                .replace(['"', '{', '}', '[', ']'], "")
                .replace(',', ", ");
            println!("{key}: {shown}");
        }
    }
}
