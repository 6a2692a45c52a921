//! Machines as targets that Prometheus scrapes (`file_sd_configs`), and a machine's first sample.

use hpc_schema::task::{GuestSample, SliceSlot, SliceVmProvision};
use serde_json::json;

/// The target file of a machine; its exporter at `port` of its address, if the site asks one.
#[must_use]
pub fn targets(p: &SliceVmProvision, first: &SliceSlot, port: Option<u16>, uuid: &str) -> String {
    let targets: Vec<String> = port
        .iter()
        .map(|port| format!("{}:{port}", first.private_ip))
        .collect();
    let labels = json!({
        "vm_name": p.vm_name, "allocation_id": p.allocation_id, "domain_uuid": uuid, "job": "slice",
    });
    json!([{ "targets": targets, "labels": labels }]).to_string()
}

/// Reads `virsh domstats --cpu-total --balloon`.
#[must_use]
pub fn sample(said: &str) -> Option<GuestSample> {
    let of = |name: &str| {
        let value = said
            .lines()
            .find_map(|l| l.trim().strip_prefix(name)?.strip_prefix('='))?;
        value.parse::<u64>().ok()
    };
    let cpu = of("cpu.time")?;
    (cpu > 0).then_some(())?;
    Some(GuestSample {
        cpu_time_ms: cpu / 1_000_000,
        memory_kib: of("balloon.current")?,
        exporter_series: None,
    })
}

/// Series of an exporter's text.
#[must_use]
pub fn series(text: &str) -> u64 {
    let lines = text.lines().filter(|l| {
        let value = l.rsplit(' ').next().unwrap_or_default();
        !l.starts_with('#') && l.contains(' ') && value.parse::<f64>().is_ok()
    });
    u64::try_from(lines.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_of_a_machine_that_runs() {
        let said = "Domain: 't1'\n  cpu.time=430000000\n  cpu.user=330000000\n  balloon.current=196608\n";
        let sample = sample(said).unwrap();
        assert_eq!((sample.cpu_time_ms, sample.memory_kib), (430, 196_608));
        assert!(super::sample("cpu.time=0\nballoon.current=1").is_none() && super::sample("").is_none());
        assert_eq!(series("# HELP a b\na 1\nb{c=\"d\"} 2.5\nno_value\n\n"), 2);
    }
}
