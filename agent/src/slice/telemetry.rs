//! Machines as targets that Prometheus scrapes (`file_sd_configs`), and a machine's first sample.

use std::net::SocketAddr;

use hpc_schema::task::{GuestSample, SliceSlot, SliceVmProvision};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The target file of a machine: its exporter at `port` of its address, if the site asks one, and what libvirt says of it, at
/// `statistics`. `mark` says whose it is, in a label that Prometheus does not keep.
#[must_use]
pub fn targets(
    p: &SliceVmProvision,
    first: &SliceSlot,
    (port, statistics): (Option<u16>, Option<&Url>),
    (uuid, mark): (&str, &str),
) -> String {
    let group = |job: &str, target: Option<String>, more: Value| {
        let mut labels = json!({
            "vm_name": p.vm_name, "allocation_id": p.allocation_id, "domain_uuid": uuid, "job": job, "__virtengine": mark,
        });
        if let (Some(labels), Value::Object(more)) = (labels.as_object_mut(), more) {
            labels.extend(more);
        }
        json!({ "targets": target.into_iter().collect::<Vec<_>>(), "labels": labels })
    };
    let exporter = port.map(|port| format!("{}:{port}", first.private_ip));
    // Also without a target: the file says whose it is.
    let mut groups = vec![group("slice", exporter, json!({}))];
    groups.extend(statistics.map(|url| {
        let page = json!({ "__scheme__": url.scheme(), "__metrics_path__": page_of(p) });
        group("slice-libvirt", Some(url.place.clone()), page)
    }));
    json!(groups).to_string()
}

/// Where the agent's local interface has the machine's page.
fn page_of(p: &SliceVmProvision) -> String {
    format!("/metrics/slices/{}", p.vm_name)
}

/// Where Prometheus reaches the agent's local interface: `http://` or `https://`, and `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Url {
    tls: bool,
    place: String,
}

impl Url {
    /// Of an interface that listens there; one that listens on every address is reached by the host's name.
    #[must_use]
    pub fn of(listen: SocketAddr, tls: bool, host: &str) -> Self {
        let place = if listen.ip().is_unspecified() {
            format!("{host}:{}", listen.port())
        } else {
            listen.to_string()
        };
        Self { tls, place }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// The page of a machine.
    #[must_use]
    pub fn page(&self, p: &SliceVmProvision) -> String {
        format!("{}://{}{}", self.scheme(), self.place, page_of(p))
    }
}

impl TryFrom<String> for Url {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WHAT: &str = "must be http://host:port or https://host:port";
        let (tls, place) = match text.split_once("://") {
            Some(("http", place)) => (false, place),
            Some(("https", place)) => (true, place),
            _ => return Err(WHAT),
        };
        let (host, port) = place.rsplit_once(':').ok_or(WHAT)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || !host.chars().all(plain) || port.parse::<u16>().is_err() {
            return Err(WHAT);
        }
        Ok(Self {
            tls,
            place: place.to_owned(),
        })
    }
}

impl From<Url> for String {
    fn from(url: Url) -> Self {
        format!("{}://{}", url.scheme(), url.place)
    }
}

impl JsonSchema for Url {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Url".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^https?://[A-Za-z0-9._:\\[\\]-]+:[0-9]+$" })
    }
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
        statistics_series: None,
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
    fn both_are_targets_and_the_file_says_whose_it_is() {
        let p: SliceVmProvision = serde_json::from_value(json!({
            "allocation_id": "a", "vm_name": "vm-1", "image_path": "/i/a", "image_sha256": "0".repeat(64),
            "default_username": "alice", "ovs_bridge": "br-slice", "slots": [{
                "slot_id": "slot-0", "slot_index": 0, "nvme_device": "/dev/disk/by-id/nvme-1",
                "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16",
            }],
            "ssh_public_keys": [format!("ssh-ed25519 {}", "A".repeat(68))],
        }))
        .unwrap();
        let url: Url = serde_json::from_value(json!("https://node-1:9000")).unwrap();
        assert_eq!(url.page(&p), "https://node-1:9000/metrics/slices/vm-1");
        let first = p.slots.first().unwrap();
        let all = |of| -> Value {
            serde_json::from_str(&targets(&p, first, of, ("u", "virtengine t/1@x"))).unwrap()
        };
        let both = all((Some(9100), Some(&url)));
        assert_eq!(both[0]["targets"], json!(["10.77.0.16:9100"]));
        assert_eq!(both[1]["targets"], json!(["node-1:9000"]));
        let labels = &both[1]["labels"];
        assert_eq!(labels["__metrics_path__"], "/metrics/slices/vm-1");
        assert_eq!(
            (labels["__scheme__"].as_str(), labels["vm_name"].as_str()),
            (Some("https"), Some("vm-1"))
        );
        let none = all((None, None));
        assert_eq!(none, json!([{"targets": [], "labels": none[0]["labels"]}]));
        assert_eq!(none[0]["labels"]["__virtengine"], "virtengine t/1@x");
        let url = |listen: &str, tls| Url::of(listen.parse().unwrap(), tls, "n-1").page(&p);
        assert_eq!(
            url("127.0.0.1:9000", false),
            "http://127.0.0.1:9000/metrics/slices/vm-1"
        );
        assert_eq!(url("[::]:9000", true), "https://n-1:9000/metrics/slices/vm-1");
        for bad in [
            "node-1:9000",
            "ftp://a:1",
            "http://a",
            "http://a:b",
            "http://a/x:1",
            "http://:1",
            "http://a@b:1",
        ] {
            assert!(serde_json::from_value::<Url>(json!(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sample_is_one_of_a_machine_that_runs() {
        let said = "Domain: 't1'\n  cpu.time=430000000\n  cpu.user=330000000\n  balloon.current=196608\n";
        let sample = sample(said).unwrap();
        assert_eq!((sample.cpu_time_ms, sample.memory_kib), (430, 196_608));
        assert!(super::sample("cpu.time=0\nballoon.current=1").is_none() && super::sample("").is_none());
        assert_eq!(series("# HELP a b\na 1\nb{c=\"d\"} 2.5\nno_value\n\n"), 2);
    }
}
