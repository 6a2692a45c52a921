//! `/metrics/slices/<vm_name>`: what libvirt says of a slice's machine, by the names that Prometheus' exporters of libvirt
//! have for it.

use super::{Kind, Number, Page, label};
use crate::slice::statistics::OfMachine;

/// libvirt's name, ours, what it is, and how many of ours one of libvirt's is: factor and decimal places.
type Figure = (&'static str, &'static str, &'static str, Kind, (u64, u8));

const OF_MACHINE: [Figure; 5] = [
    (
        "cpu.time",
        "libvirt_domain_info_cpu_time_seconds_total",
        "Processor time that the machine has used.",
        Kind::Counter,
        (1, 9),
    ),
    (
        "vcpu.current",
        "libvirt_domain_info_virtual_cpus",
        "Processors of the machine.",
        Kind::Gauge,
        (1, 0),
    ),
    (
        "balloon.current",
        "libvirt_domain_info_memory_usage_bytes",
        "Memory that the machine has.",
        Kind::Gauge,
        (1024, 0),
    ),
    (
        "balloon.maximum",
        "libvirt_domain_info_maximum_memory_bytes",
        "Memory that the machine may have.",
        Kind::Gauge,
        (1024, 0),
    ),
    (
        "balloon.rss",
        "libvirt_domain_memory_stats_rss_bytes",
        "Memory that the machine's process takes of the host.",
        Kind::Gauge,
        (1024, 0),
    ),
];

const OF_DISK: [Figure; 4] = [
    (
        "rd.bytes",
        "libvirt_domain_block_stats_read_bytes_total",
        "Bytes read from the disk.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "rd.reqs",
        "libvirt_domain_block_stats_read_requests_total",
        "Reads of the disk.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "wr.bytes",
        "libvirt_domain_block_stats_write_bytes_total",
        "Bytes written to the disk.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "wr.reqs",
        "libvirt_domain_block_stats_write_requests_total",
        "Writes to the disk.",
        Kind::Counter,
        (1, 0),
    ),
];

const OF_CARD: [Figure; 4] = [
    (
        "rx.bytes",
        "libvirt_domain_interface_stats_receive_bytes_total",
        "Bytes that the card has received.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "rx.pkts",
        "libvirt_domain_interface_stats_receive_packets_total",
        "Packets that the card has received.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "tx.bytes",
        "libvirt_domain_interface_stats_transmit_bytes_total",
        "Bytes that the card has sent.",
        Kind::Counter,
        (1, 0),
    ),
    (
        "tx.pkts",
        "libvirt_domain_interface_stats_transmit_packets_total",
        "Packets that the card has sent.",
        Kind::Counter,
        (1, 0),
    ),
];

/// The page of one machine.
pub(in crate::api) fn page(of: &OfMachine) -> String {
    let mut page = Page::default();
    let number = |name: &str, (factor, places): (u64, u8)| {
        let value = of.values.get(name)?;
        Some(Number::scaled(
            i128::from(*value).saturating_mul(i128::from(factor)),
            places,
        ))
    };
    let domain = || label("domain", of.vm_name.as_str());
    for (theirs, ours, help, kind, unit) in OF_MACHINE {
        let sample = number(theirs, unit).map(|n| (vec![domain()], n));
        page.family(kind, ours, help, sample);
    }
    for (group, figures) in [("block", OF_DISK), ("net", OF_CARD)] {
        for (theirs, ours, help, kind, unit) in figures {
            let samples = of.devices.iter().filter_map(|(place, device)| {
                let place = place.strip_suffix(".name").filter(|p| p.starts_with(group))?;
                let n = number(&format!("{place}.{theirs}"), unit)?;
                Some((vec![domain(), label("target_device", device.as_str())], n))
            });
            page.family(kind, ours, help, samples);
        }
    }
    page.one(
        Kind::Gauge,
        "virtengine_slice_statistics_time_seconds",
        "When libvirt was asked, in unixtime.",
        Some(Number::whole(of.at)),
    );
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units_and_devices_and_what_is_unknown_has_no_sample() {
        let said = "cpu.time=1500000000\nballoon.current=2048\nblock.count=1\nblock.0.name=vda\nblock.0.wr.bytes=7\n\
                    net.0.name=vnet0\nnet.0.rx.pkts=3\n";
        let text = page(&OfMachine::read(said, ("vm-1", "u"), 9));
        for line in [
            "libvirt_domain_info_cpu_time_seconds_total{domain=\"vm-1\"} 1.5",
            "libvirt_domain_info_memory_usage_bytes{domain=\"vm-1\"} 2097152",
            "libvirt_domain_block_stats_write_bytes_total{domain=\"vm-1\",target_device=\"vda\"} 7",
            "libvirt_domain_interface_stats_receive_packets_total{domain=\"vm-1\",target_device=\"vnet0\"} 3",
            "virtengine_slice_statistics_time_seconds 9",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        assert_eq!(text.lines().filter(|l| !l.starts_with('#')).count(), 5, "{text}");
    }
}
