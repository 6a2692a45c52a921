//! What a slice's machine can do, measured in it.

use std::collections::BTreeMap;

use hpc_schema::task::{Performance, PerformanceBars};

/// Reads from its standard input, so that it is nobody's argument.
pub const SHELL: &str = "sh -s";

/// Each test runs for half a second at least and says how often, and in how many hundredths of a second. An event of the
/// CPU test is the SHA-256 of a MiB on one processor; memory is copied from the kernel; the disk is written through and
/// read past the cache.
pub const SCRIPT: &str = r#"t() { read a b </proc/uptime; echo "${a%.*}${a#*.}"; }
f=/var/tmp/.virtengine-probe
cpu() { dd if=/dev/zero bs=1048576 count=4 2>/dev/null | sha256sum >/dev/null; }
memory() { dd if=/dev/zero of=/dev/null bs=1048576 count=256 2>/dev/null; }
write() { dd if=/dev/zero of=$f bs=1048576 count=16 conv=fsync 2>/dev/null; }
read_() { dd if=$f of=/dev/null bs=1048576 count=16 iflag=direct 2>/dev/null; }
for test in cpu:4 memory:256 write:16 read_:16; do
    s=$(t); n=0; e=0
    while [ $e -lt 50 ]; do ${test%:*} || exit 1; n=$((n + ${test#*:})); e=$(($(t) - s)); done
    echo "${test%:*} $n $e"
done
rm -f $f
for d in /sys/bus/pci/devices/*; do
    read v <$d/vendor; read c <$d/class
    case $v$c in 0x10de0x03*) read w <$d/current_link_width; echo "gpu ${d##*/} $w" ;; esac
done
for p in /sys/class/infiniband/*/ports/*; do
    [ -r "$p/state" ] && { read s <$p/state; echo "fabric $s"; }
done
echo "end 1 1"
"#;

/// Reads what the script says; none if it did not come to its end.
#[must_use]
pub fn parse(said: &str) -> Option<Performance> {
    let mut p = Performance {
        gpu_pcie_width: BTreeMap::new(),
        ..Performance::default()
    };
    let (mut ended, mut links) = (false, Vec::new());
    for line in said.lines() {
        let mut words = line.split_ascii_whitespace();
        let (name, first, second) = (words.next()?, words.next(), words.next());
        let rate = || {
            let (n, e): (u64, u64) = (first?.parse().ok()?, second?.parse().ok()?);
            n.checked_mul(100)?.checked_div(e)
        };
        match name {
            "cpu" => p.cpu_events_per_second = Some(rate()?),
            "memory" => p.memory_mib_per_second = Some(rate()?),
            "write" => p.disk_write_mib_per_second = Some(rate()?),
            "read_" => p.disk_read_mib_per_second = Some(rate()?),
            "gpu" => {
                p.gpu_pcie_width.insert(first?.to_owned(), second?.parse().ok()?);
            }
            // `4: ACTIVE`.
            "fabric" => links.push(second == Some("ACTIVE")),
            "end" => ended = true,
            _ => {}
        }
    }
    p.fabric_link = (!links.is_empty()).then(|| links.iter().all(|up| *up));
    ended.then_some(p)
}

/// The first bar that is not reached. `gpus` and `fabrics` were handed through.
#[must_use]
pub fn below(p: &Performance, bars: &PerformanceBars, gpus: usize, fabrics: usize) -> Option<String> {
    let rates = [
        (
            "cpu_events_per_second",
            p.cpu_events_per_second,
            bars.cpu_events_per_second,
        ),
        (
            "memory_mib_per_second",
            p.memory_mib_per_second,
            bars.memory_mib_per_second,
        ),
        (
            "disk_read_mib_per_second",
            p.disk_read_mib_per_second,
            bars.disk_read_mib_per_second,
        ),
        (
            "disk_write_mib_per_second",
            p.disk_write_mib_per_second,
            bars.disk_write_mib_per_second,
        ),
    ];
    for (name, measured, bar) in rates {
        let Some(bar) = bar else { continue };
        match measured {
            Some(m) if m >= bar => {}
            Some(m) => return Some(format!("performance.{name}: {m} measured, {bar} wanted")),
            None => return Some(format!("performance.{name}: not measured, {bar} wanted")),
        }
    }
    if p.gpu_pcie_width.len() < gpus {
        let seen = p.gpu_pcie_width.len();
        return Some(format!(
            "{gpus} GPUs were handed through, the machine sees {seen}"
        ));
    }
    if let Some(bar) = bars.gpu_pcie_width
        && let Some((gpu, width)) = p.gpu_pcie_width.iter().find(|(_, w)| **w < bar)
    {
        return Some(format!(
            "performance.gpu_pcie_width: {gpu} has {width} lanes, {bar} wanted"
        ));
    }
    (fabrics > 0 && p.fabric_link != Some(true))
        .then(|| "the fabric's link is not up in the machine".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "cpu 8 100\nmemory 512 50\nwrite 16 200\nread_ 32 64\ngpu 0000:05:00.0 16\nfabric 4: ACTIVE\nend 1 1\n";

    #[test]
    fn what_the_guest_says_becomes_rates_and_a_cut_answer_is_none() {
        let p = parse(SAID).unwrap();
        assert_eq!(
            (p.cpu_events_per_second, p.memory_mib_per_second),
            (Some(8), Some(1024))
        );
        assert_eq!(
            (p.disk_write_mib_per_second, p.disk_read_mib_per_second),
            (Some(8), Some(50))
        );
        assert_eq!(
            (p.gpu_pcie_width["0000:05:00.0"], p.fabric_link),
            (16, Some(true))
        );
        assert_eq!(parse("cpu 8 100\n"), None);
        assert_eq!(parse("cpu eight 100\nend 1 1\n"), None);
        assert_eq!(parse("cpu 8 0\nend 1 1\n"), None);
    }

    #[test]
    fn each_bar_is_named_when_it_is_missed() {
        let p = parse(SAID).unwrap();
        let bars = PerformanceBars::default();
        assert_eq!(below(&p, &bars, 1, 1), None);
        let miss = |change: fn(&mut PerformanceBars)| {
            let mut bars = PerformanceBars::default();
            change(&mut bars);
            below(&p, &bars, 1, 1).unwrap_or_default()
        };
        assert!(miss(|b| b.cpu_events_per_second = Some(9)).contains("cpu_events_per_second: 8 measured, 9"));
        assert!(miss(|b| b.memory_mib_per_second = Some(1025)).contains("memory"));
        assert!(miss(|b| b.disk_read_mib_per_second = Some(51)).contains("disk_read"));
        assert!(miss(|b| b.disk_write_mib_per_second = Some(9)).contains("disk_write"));
        assert!(miss(|b| b.gpu_pcie_width = Some(17)).contains("16 lanes"));
        assert!(below(&p, &bars, 2, 0).unwrap().contains("sees 1"));
        let silent = parse("end 1 1").unwrap();
        assert!(below(&silent, &bars, 0, 1).unwrap().contains("fabric"));
    }
}
