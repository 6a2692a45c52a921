mod devices;
mod kept;
mod rows;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use self::devices::describe_devices;
use self::kept::{held_by_tasks, kept_drained, round_trips};
use self::rows::row;
use super::output::{print, say};
use super::{ConfigArguments, Failure, Format, runtime};
use crate::clock::unix_seconds;
use crate::config::Reserve;
use crate::health::{self, Beside};
use crate::heartbeat::{Held, capacity};
use crate::probe::fingerprint;
use crate::probe::slurm::LastWord;
use crate::sample::{Category, Sampler, Sources, standard};
use crate::state::StateDir;

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
const BUDGET: Duration = Duration::from_secs(12);

impl Inventory {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // Works before there is a configuration: what would this node report?
        let (sources, reserve, tasks) = if self.config.is_there()? {
            let c = self.config.load_as_owner()?;
            (c.sources(), c.reserve, c.tasks.map(|t| t.dir))
        } else {
            (Sources::default(), Reserve::default(), None)
        };
        // What a running agent has counted counts; only it goes on writing.
        let sources = Sources {
            keeps: false,
            ..sources
        };
        let word = LastWord::remembered(&StateDir::new(&sources.memory_dir).slurm(), &sources.slurm);
        let mut sampler = Sampler::new(standard(&sources)).knowing(word.drained);
        runtime()?.block_on(async {
            sampler.sample(|_| true, BUDGET).await;
            tokio::time::sleep(BETWEEN).await;
            sampler
                .sample(
                    |c| matches!(c, Category::Utilization | Category::Temperature),
                    BUDGET,
                )
                .await;
        });
        let (held, of_tasks) = held_by_tasks(tasks.as_deref());
        let mut value = describe(&sampler, &sources, held, reserve, word.cpus);
        if let Some(rows) = value.get_mut("figures").and_then(Value::as_array_mut) {
            rows.push(of_tasks);
            rows.extend(round_trips(&StateDir::new(&sources.memory_dir), unix_seconds()));
        }
        match self.output {
            Format::Text => text(&value),
            format => {
                print(&value, format)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(sampler: &Sampler, sources: &Sources, held: Held, reserve: Reserve, cpus: Option<u32>) -> Value {
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
    row(&mut rows, now, "memory busy %", &f.memory, |_| {
        json!(f.memory_use(now))
    });
    row(
        &mut rows,
        now,
        "storage bytes",
        &f.storage,
        |s| json!({"total": s.total, "available": s.available, "used": s.used}),
    );
    row(&mut rows, now, "GPUs on the bus", &f.pci_gpus, |v| json!(v.all()));
    row(&mut rows, now, "lost GPUs", &f.pci_gpus, |v| json!(v.lost));
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
    row(
        &mut rows,
        now,
        "busiest port %",
        &f.fabric,
        |n| json!({"device": n.device, "percent": n.percent}),
    );
    row(&mut rows, now, "CPU temperature °C", &f.temperature, |v| {
        json!(v)
    });
    describe_devices(&mut rows, now, f);
    let stuck: Vec<&str> = sampler.stuck().iter().map(|s| s.name).collect();
    let (ordered, out) = kept_drained(&StateDir::new(&sources.memory_dir));
    let beside = Beside {
        stuck: &stuck,
        ordered,
        out: out.as_ref(),
        unix: unix_seconds(),
        ..Beside::default()
    };
    let findings = health::findings(f, &beside, now);
    let health = health::status(&findings);
    let fingerprint = fingerprint::read(&sources.roots);
    json!({
        "figures": rows,
        "capacity": capacity(f, held, reserve, cpus, now),
        "health": health.as_str(),
        "findings": findings.iter().map(health::Finding::shown).collect::<Vec<_>>(),
        "hardware_fingerprint": fingerprint.as_ref().map(|f| &f.value),
        "fingerprint_sources": fingerprint.as_ref().map(|f| f.sources.keys().collect::<Vec<_>>()),
    })
}

fn decimal(millionths: u64) -> String {
    format!(
        "{}.{:02}",
        millionths / 1_000_000,
        millionths % 1_000_000 / 10_000
    )
}

fn text(value: &Value) {
    say!("{:<20} {:<56} {:>8}  SOURCE", "FIGURE", "VALUE", "AGE");
    for row in value
        .get("figures")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
        let shown = match row.get("value") {
            None | Some(Value::Null) => match word("reason") {
                "" => "absent".to_owned(),
                why => format!("absent: {why}"),
            },
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
        say!("{:<20} {shown:<56} {age:>8}  {}", word("name"), word("source"));
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
            say!("{key}: {shown}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Journal, OrderedDrain};
    use crate::health::OutOfService;
    use crate::probe::Roots;
    use crate::probe::slurm::{By, Drained};
    use crate::state::ServiceRecord;

    #[test]
    fn a_drain_of_the_agents_own_is_no_administrators_and_a_node_out_of_service_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let sources = Sources {
            roots: Roots::below(dir.path()),
            memory_dir: dir.path().to_owned(),
            ..Sources::default()
        };
        let told = |by| {
            let drained = Drained {
                state: "IDLE+DRAIN".to_owned(),
                reason: None,
                by,
            };
            let sampler = Sampler::new(Vec::new()).knowing(Some(drained));
            let value = describe(&sampler, &sources, Held::default(), Reserve::default(), None);
            let findings = value["findings"].as_array().unwrap().iter();
            let codes = findings.map(|f| f.as_str().unwrap().split(':').next().unwrap().to_owned());
            (
                value["health"].as_str().unwrap().to_owned(),
                codes.collect::<Vec<_>>(),
            )
        };
        let is = |health: &str, codes: &[&str]| {
            let codes: Vec<String> = codes.iter().map(|c| (*c).to_owned()).collect();
            (health.to_owned(), codes)
        };
        // Nothing says that any is wanted still.
        for by in [None, Some(By::Order), Some(By::Health)] {
            assert_eq!(told(by), is("draining", &["slurm_drain"]), "{by:?}");
        }
        let mut journal = Journal::new(1);
        journal.drain = Some(OrderedDrain {
            command_id: "d".to_owned(),
            since: 2,
            reason: None,
        });
        journal.save(&state).unwrap();
        assert_eq!(told(Some(By::Order)), is("healthy", &[]));
        assert_eq!(told(None), is("draining", &["slurm_drain"]));
        ServiceRecord {
            out: Some(OutOfService {
                since: 3,
                reasons: Vec::new(),
                waits_for: None,
            }),
            ..ServiceRecord::default()
        }
        .save(&state)
        .unwrap();
        assert_eq!(told(Some(By::Health)), is("draining", &["out_of_service"]));
        // What cannot be read says nothing.
        for file in [state.orders(), state.service()] {
            std::fs::write(file, "{").unwrap();
        }
        assert_eq!(told(Some(By::Order)), is("draining", &["slurm_drain"]));
    }
}
