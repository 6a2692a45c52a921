//! What a process and the machine did meanwhile, read from `/proc`.

use std::fs;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// A process at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Time on a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes sent to the disk.
    pub written: u64,
    /// Resident memory, in KiB.
    pub rss_kib: u64,
}

/// Reads it.
///
/// # Errors
/// If the process has ended.
pub fn usage(pid: u32) -> Result<Usage> {
    let mut cpu_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        cpu_ns += first_number(&stat).unwrap_or(0);
    }
    let of = |file: &str, name: &str| -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(first_number)
            .with_context(|| format!("/proc/{pid}/{file} has no {name}"))
    };
    Ok(Usage {
        cpu_ns,
        written: of("io", "write_bytes:")?,
        rss_kib: of("status", "VmRSS:")?,
    })
}

/// The CPUs that this process may use.
///
/// # Errors
/// If the system does not say.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    cpu_list(list.context("/proc/self/status has no Cpus_allowed_list")?)
}

/// Numbers and ranges: `0-2,5`.
fn cpu_list(list: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(from.parse::<u32>()?..=to.parse()?);
    }
    Ok(cpus)
}

/// Time of this thread on a CPU, in nanoseconds; to the moment, where `/proc` tells it as of the last tick.
///
/// # Errors
/// If the system says what no clock can.
pub fn thread_cpu_ns() -> Result<u64> {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(spent.tv_sec)?;
    Ok(seconds * 1_000_000_000 + u64::try_from(spent.tv_nsec)?)
}

/// Time that all CPUs were busy since the start of the machine, in nanoseconds.
///
/// # Errors
/// If the system does not say.
pub fn machine_busy_ns() -> Result<u64> {
    // user, nice, system, irq, softirq, steal.
    machine_ns("cpu", &[0, 1, 2, 5, 6, 7])
}

/// Time since the start of the machine in which the host kept the busier one of two CPUs from it that had work, in nanoseconds:
/// it counts as time of whoever ran.
///
/// # Errors
/// If the system does not say, or has no such CPU.
pub fn stolen_ns(cpus: [u32; 2]) -> Result<u64> {
    let of = |cpu| machine_ns(&format!("cpu{cpu}"), &[7]);
    Ok(of(cpus[0])?.max(of(cpus[1])?))
}

/// Of a line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; ticks of 10 ms.
fn machine_ns(line: &str, columns: &[usize]) -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let found = stat
        .lines()
        .find(|l| l.split_ascii_whitespace().next() == Some(line));
    let ticks: Vec<u64> = found
        .with_context(|| format!("/proc/stat has no {line}"))?
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    let of = |at: &usize| ticks.get(*at).copied().unwrap_or(0);
    Ok(columns.iter().map(of).sum::<u64>() * 10_000_000)
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_read_as_the_kernel_lists_them() {
        assert_eq!(cpu_list("\t0-2,5,7-8\n").unwrap(), [0, 1, 2, 5, 7, 8]);
        assert!(cpu_list("").is_err() && cpu_list("a-b").is_err());
        assert!(!allowed_cpus().unwrap().is_empty());
    }

    #[test]
    fn work_shows_in_the_figures_of_process_thread_and_machine() {
        let pid = std::process::id();
        let (before, thread, machine) = (
            usage(pid).unwrap(),
            thread_cpu_ns().unwrap(),
            machine_busy_ns().unwrap(),
        );
        let began = std::time::Instant::now();
        let mut sum = 0u64;
        while began.elapsed().as_millis() < 300 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(usage(pid).unwrap().cpu_ns > before.cpu_ns && before.rss_kib > 100);
        assert!(thread_cpu_ns().unwrap() > thread);
        assert!(machine_busy_ns().unwrap() > machine);
        assert!(stolen_ns([0, 0]).unwrap() < machine_busy_ns().unwrap());
        assert!(stolen_ns([0, 9_999]).is_err());
    }
}
