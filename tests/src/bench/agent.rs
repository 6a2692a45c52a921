//! What a process costs the machine it watches: memory, CPU time, wake-ups, with all its children.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A process and all below it, at one moment. Counters only grow while its threads live.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Proportional set size in KiB: shared pages are counted once among those who share them.
    pub pss_kib: u64,
    /// Time on a CPU in nanoseconds, of threads that live.
    pub cpu_ns: u64,
    /// Time on a CPU of children that have ended, programs of others among them, in nanoseconds.
    pub ended_ns: u64,
    /// Times a thread was switched away from: each is followed by a wake-up.
    pub switches: u64,
}

/// Reads it from `/proc`.
///
/// # Errors
/// If the process has ended.
pub fn cost(pid: u32) -> Result<Cost> {
    let mut sum = Cost::default();
    let mut waiting = vec![pid];
    while let Some(next) = waiting.pop() {
        let one = match one(next, &mut waiting) {
            Ok(one) => one,
            // A child may have ended meanwhile; the process itself must be there.
            Err(_) if next != pid => continue,
            Err(e) => return Err(e),
        };
        sum.pss_kib += one.pss_kib;
        sum.cpu_ns += one.cpu_ns;
        sum.ended_ns += one.ended_ns;
        sum.switches += one.switches;
    }
    Ok(sum)
}

fn one(pid: u32, children: &mut Vec<u32>) -> Result<Cost> {
    let folder = Path::new("/proc").join(pid.to_string());
    let mut cost = Cost {
        pss_kib: field(&fs::read_to_string(folder.join("smaps_rollup"))?, "Pss:")?,
        ..Cost::default()
    };
    cost.ended_ns = ended(&fs::read_to_string(folder.join("stat"))?)?;
    for task in fs::read_dir(folder.join("task"))? {
        let task = task?.path();
        let Ok(schedstat) = fs::read_to_string(task.join("schedstat")) else {
            continue; // The thread has ended.
        };
        let on_cpu = schedstat.split_ascii_whitespace().next();
        cost.cpu_ns += on_cpu.context("an empty schedstat")?.parse::<u64>()?;
        let status = fs::read_to_string(task.join("status"))?;
        cost.switches += field(&status, "voluntary_ctxt_switches:")?;
        let below = fs::read_to_string(task.join("children")).unwrap_or_default();
        children.extend(
            below
                .split_ascii_whitespace()
                .filter_map(|p| p.parse::<u32>().ok()),
        );
    }
    Ok(cost)
}

/// `cutime` and `cstime` of `/proc/<pid>/stat`, the 16th and 17th field; the second one is a name in brackets.
fn ended(stat: &str) -> Result<u64> {
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = rest
        .split_ascii_whitespace()
        .skip(13)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<u64, _>>()?;
    // Clock ticks are hundredths of a second on Linux whatever the kernel's own.
    Ok(ticks * 10_000_000)
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name))
        .with_context(|| format!("no {name}"))?;
    Ok(line
        .split_ascii_whitespace()
        .next()
        .context("no number")?
        .parse()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_costs_memory_and_time_and_its_children_count() {
        let before = cost(std::process::id()).unwrap();
        assert!(before.pss_kib > 100 && before.cpu_ns > 0);
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(cost(std::process::id()).unwrap().ended_ns > before.ended_ns);
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let alone = cost(child.id()).unwrap();
        let with = cost(std::process::id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alone.pss_kib > 0 && with.cpu_ns > before.cpu_ns);
        assert!(cost(child.id()).is_err(), "it has ended");
    }
}
