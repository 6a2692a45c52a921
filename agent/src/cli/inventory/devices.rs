//! Drivers, batch system, instruments.

use std::time::Instant;

use hpc_schema::heartbeat::Services;
use serde_json::{Value, json};

use super::rows::row;
use crate::probe::errors::{XidSeen, xid};
use crate::probe::hardware::infiniband::Port;
use crate::probe::hardware::memory_errors::Controller;
use crate::probe::hardware::sensors::Sensor;
use crate::probe::services::ServicesFound;
use crate::probe::slurm::Answer;
use crate::sample::Figures;

pub(super) fn describe_devices(rows: &mut Vec<Value>, now: Instant, f: &Figures) {
    row(rows, now, "GPUs", &f.gpus, |r| json!(r));
    row(rows, now, "errors 24 h", &f.errors, |e| {
        let last = e.last.as_ref().map(|l| &l.text);
        json!({
            "errors": e.errors, "warnings": e.warnings, "since": e.since, "missed": e.missed,
            "not_whole": e.missing(), "classes": e.classes, "last": last,
            "xids": e.xids.iter().map(fault).collect::<Vec<_>>(),
        })
    });
    row(rows, now, "Slurm node", &f.slurm, |a| match a {
        Answer::NotHere => json!("no Slurm here"),
        Answer::Silent => json!("does not answer"),
        Answer::Said(n) => json!({
            "state": n.state_text, "reason": n.reason, "cpus": n.cpus, "cpus_allocated": n.cpus_allocated,
            "memory_allocated_mib": n.memory_allocated_mib, "gpus_allocated": n.gpus_allocated,
        }),
    });
    row(rows, now, "Slurm jobs", &f.jobs, |a| match a {
        Answer::NotHere => json!("no Slurm here"),
        Answer::Silent => json!("does not answer"),
        Answer::Said(j) => json!({
            "running": j.active, "pending": j.pending,
            "completed": j.ended.map(|e| e.completed), "failed": j.ended.map(|e| e.failed),
            "withdrawn": j.ended.map(|e| e.withdrawn), "unknown": j.ended.map(|e| e.unknown), "since": j.since,
        }),
    });
    row(rows, now, "services", &f.services, |found| {
        services(crate::heartbeat::services(f, now).as_ref(), found)
    });
    row(rows, now, "site checks", &f.checks, |c| {
        let shown = c.results.iter().map(|r| (r.name.clone(), json!(r.line)));
        Value::Object(shown.collect())
    });
    row(rows, now, "power", &f.power, |domains| {
        Value::Object(
            domains
                .iter()
                .map(|d| (d.name.clone(), json!(format!("{} mW", d.milliwatts))))
                .collect(),
        )
    });
    row(rows, now, "sensors", &f.sensors, |sensors| {
        let shown = |s: &Sensor| {
            (
                format!("{} {}", s.chip, s.label),
                json!(format!("{} {}", s.value, s.kind.unit())),
            )
        };
        Value::Object(sensors.iter().map(shown).collect())
    });
    row(rows, now, "memory errors", &f.memory_errors, |controllers| {
        let shown = |c: &Controller| {
            (
                c.name.clone(),
                json!({"corrected": c.corrected, "uncorrected": c.uncorrected}),
            )
        };
        Value::Object(controllers.iter().map(shown).collect())
    });
    row(rows, now, "InfiniBand ports", &f.ports, |ports| {
        let shown = |p: &Port| (format!("{}/{}", p.device, p.port), port(p));
        Value::Object(ports.iter().map(shown).collect())
    });
}

/// A fault of a GPU, with what it means where that is known.
fn fault(seen: &XidSeen) -> Value {
    let meaning = xid::look_up(seen.code).map(|x| x.meaning);
    json!({"at": seen.at, "device": seen.device, "code": seen.code, "count": seen.count, "meaning": meaning})
}

/// As the heartbeat has them, with the version that it has no field for.
fn services(told: Option<&Services>, found: &ServicesFound) -> Value {
    let mut shown = json!(told);
    if let (Some(all), Some(version)) = (shown.as_object_mut(), &found.munge_version) {
        all.insert("munge_version".to_owned(), json!(version));
    }
    shown
}

fn port(p: &Port) -> Value {
    json!({
        "state": p.state, "physical": p.physical, "layer": p.layer, "lost": p.lost,
        "rate_mbps": p.rate_mbps, "percent": p.percent, "received": p.received, "sent": p.sent,
        "errors": p.errors, "flaps_24h": p.flaps, "last_flap": p.last_flap,
    })
}

#[cfg(test)]
mod tests {
    use hpc_schema::heartbeat::Label;

    use super::*;
    use crate::probe::errors::Errors;

    #[test]
    fn messages_that_were_lost_and_a_journal_that_fails_stand_beside_the_counts() {
        let (mut figures, now) = (Figures::default(), Instant::now());
        let mut errors = Errors {
            errors: 2,
            since: 1_000,
            missed: 7,
            ..Errors::default()
        };
        let mut shown = || {
            figures.errors.set(Some(errors.clone()), now);
            let mut rows = Vec::new();
            describe_devices(&mut rows, now, &figures);
            let row = rows.iter().find(|r| r["name"] == "errors 24 h").unwrap();
            errors.without_journal = Some("exit 1".into());
            row["value"].clone()
        };
        let whole = shown();
        assert_eq!(
            (&whole["errors"], &whole["since"], &whole["missed"]),
            (&json!(2), &json!(1_000), &json!(7))
        );
        assert!(whole["not_whole"].is_null());
        assert!(shown()["not_whole"].as_str().unwrap().contains("exit 1"));
    }

    #[test]
    fn the_version_of_munge_stands_beside_those_of_slurm_and_the_container_runtime() {
        let mut found = ServicesFound {
            services: Services {
                slurmd_running: Some(true),
                slurmd_version: Label::lossy("23.11.4"),
                munge_running: Some(true),
                container_runtime_version: Label::lossy("1.3.4"),
                ..Services::default()
            },
            munge_version: Some("0.5.15".into()),
        };
        let shown = services(Some(&found.services), &found);
        assert_eq!(
            (
                &shown["slurmd_version"],
                &shown["munge_version"],
                &shown["container_runtime_version"]
            ),
            (&json!("23.11.4"), &json!("0.5.15"), &json!("1.3.4"))
        );
        found.munge_version = None;
        assert!(
            services(Some(&found.services), &found)
                .get("munge_version")
                .is_none()
        );
    }
}
