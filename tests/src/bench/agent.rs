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
    use std::time::Duration;

    use super::*;
    use crate::wait;

    #[test]
    fn a_process_costs_memory_and_time_and_its_children_count() {
        // This process will not do: threads of other tests come and go.
        let busy =
            "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; sleep 60 & while :; do :; done";
        let mut shell = Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let id = shell.id();
        let seen = |what: &str, holds: &dyn Fn(Cost, Cost) -> bool| {
            wait::until(what, Duration::from_secs(60), || {
                let (mut below, all) = (Vec::new(), cost(id)?);
                let alone = one(id, &mut below)?;
                Ok(holds(all, alone).then_some(all))
            })
        };
        let first = seen("the child that ended", &|all, _| all.ended_ns > 0).unwrap();
        let later = seen("more time on a CPU", &|all, _| all.cpu_ns > first.cpu_ns).unwrap();
        let both = seen("the child that lives", &|all, alone| all.pss_kib > alone.pss_kib);
        let below = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        for child in below.split_ascii_whitespace() {
            Command::new("kill").arg(child).status().unwrap();
        }
        assert!(both.unwrap().pss_kib > 0 && later.ended_ns >= first.ended_ns);
        assert!(cost(id).is_err(), "it has ended");
    }
}
