//! GPUs, memory controllers, InfiniBand, power.

use std::time::Instant;

use super::{Kind, Number, Page, label, ratio};
use crate::probe::gpu::Gpu;
use crate::probe::hardware::infiniband::Port;
use crate::probe::hardware::memory_errors::Controller;
use crate::sample::Figures;

type Pick = fn(&Gpu) -> Option<Number>;

/// Each figure of a GPU: name, help, kind, value.
const GPU: [(&str, &str, Kind, Pick); 8] = [
    (
        "virtengine_gpu_working",
        "Whether the GPU answers its driver.",
        Kind::Gauge,
        |g| Some(Number::flag(g.works())),
    ),
    (
        "virtengine_gpu_utilization_ratio",
        "Share of time in which the GPU worked.",
        Kind::Gauge,
        |g| g.utilization.map(ratio),
    ),
    (
        "virtengine_gpu_memory_total_bytes",
        "Its memory.",
        Kind::Gauge,
        |g| g.memory_total.map(Number::whole),
    ),
    (
        "virtengine_gpu_memory_used_bytes",
        "Its memory in use.",
        Kind::Gauge,
        |g| g.memory_used.map(Number::whole),
    ),
    (
        "virtengine_gpu_temperature_celsius",
        "Its temperature.",
        Kind::Gauge,
        |g| g.temperature.map(Number::whole),
    ),
    (
        "virtengine_gpu_power_watts",
        "The power that it takes.",
        Kind::Gauge,
        |g| g.power_mw.map(|mw| Number::scaled(mw, 3)),
    ),
    (
        "virtengine_gpu_ecc_corrected_total",
        "Corrected memory errors since its driver was loaded.",
        Kind::Counter,
        |g| g.ecc_corrected.map(Number::whole),
    ),
    (
        "virtengine_gpu_ecc_uncorrected_total",
        "Uncorrected memory errors since its driver was loaded.",
        Kind::Counter,
        |g| g.ecc_uncorrected.map(Number::whole),
    ),
];

pub(super) fn gpus(page: &mut Page, f: &Figures, now: Instant) {
    let Some(report) = f.gpus.fresh(now) else { return };
    for (name, help, kind, pick) in GPU {
        let samples = report.gpus.iter().filter_map(|g| {
            let labels = vec![
                label("gpu", g.index.to_string()),
                label("uuid", g.uuid.clone().unwrap_or_default()),
                label("name", g.name.clone().unwrap_or_default()),
            ];
            Some((labels, pick(g)?))
        });
        page.family(kind, name, help, samples);
    }
}

pub(super) fn instruments(page: &mut Page, f: &Figures, now: Instant) {
    let controllers = |pick: fn(&Controller) -> u64| {
        let number = |name: &str| name.strip_prefix("mc").unwrap_or(name).to_owned();
        let all = f.memory_errors.fresh(now).into_iter().flatten();
        all.map(move |c| (vec![label("controller", number(&c.name))], Number::whole(pick(c))))
    };
    page.family(
        Kind::Counter,
        "node_edac_correctable_errors_total",
        "Total correctable memory errors.",
        controllers(|c| c.corrected),
    );
    page.family(
        Kind::Counter,
        "node_edac_uncorrectable_errors_total",
        "Total uncorrectable memory errors.",
        controllers(|c| c.uncorrected),
    );
    let ports = |pick: fn(&Port) -> Option<u64>| {
        let all = f.ports.fresh(now).into_iter().flatten();
        all.filter_map(move |p| {
            let labels = vec![label("device", p.device.clone()), label("port", p.port.clone())];
            Some((labels, Number::whole(pick(p)?)))
        })
    };
    page.family(
        Kind::Gauge,
        "node_infiniband_rate_bytes_per_second",
        "Maximum signal transfer rate",
        ports(|p| p.rate_mbps.map(|mbps| mbps.saturating_mul(125_000))),
    );
    page.family(
        Kind::Counter,
        "node_infiniband_port_data_received_bytes_total",
        "Number of data octets received on all links",
        ports(|p| p.received),
    );
    page.family(
        Kind::Counter,
        "node_infiniband_port_data_transmitted_bytes_total",
        "Number of data octets transmitted on all links",
        ports(|p| p.sent),
    );
    page.family(
        Kind::Gauge,
        "virtengine_node_power_watts",
        "Mean power over the last interval (RAPL).",
        f.power.fresh(now).into_iter().flatten().map(|d| {
            (
                vec![label("domain", d.name.clone())],
                Number::scaled(d.milliwatts, 3),
            )
        }),
    );
}
