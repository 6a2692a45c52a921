//! What a process costs the machine it watches: memory, CPU time, wake-ups, with all its children.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

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

/// Looks before a child counts that has not become a program: perhaps it never does.
const LOOKS: u32 = 50;
/// Between two of them.
const PAUSE: Duration = Duration::from_micros(200);

/// What a process and all below it cost, and the memory of each.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Look {
    /// Of all together.
    pub cost: Cost,
    /// Name and proportional set size in KiB of each process that runs the same program.
    pub parts: Vec<(String, u64)>,
    /// Proportional set size in KiB of those that run another program than the process itself.
    pub programs_kib: u64,
    /// A child is on its way to a program.
    unborn: bool,
}

/// Reads it from `/proc`.
///
/// # Errors
/// If the process has ended.
pub fn cost(pid: u32) -> Result<Cost> {
    look(pid).map(|look| look.cost)
}

/// Reads it from `/proc`. Until a child becomes a program it lives in its parent's memory (`vfork`): counted then, that
/// would count twice. So it is looked at again, and counts as the program that it is by then.
///
/// # Errors
/// If the process has ended.
pub fn look(pid: u32) -> Result<Look> {
    for _ in 0..LOOKS {
        let look = all(pid)?;
        if !look.unborn {
            return Ok(look);
        }
        sleep(PAUSE);
    }
    all(pid)
}

/// Proportional set size in KiB of the programs of others that a process has started and that run now: quick where there are
/// none, so that it can be asked until one that lives for milliseconds is met.
///
/// # Errors
/// If the process has ended.
pub fn programs(pid: u32) -> Result<u64> {
    let mut any = false;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        any |= !children.trim_ascii().is_empty();
    }
    if any { Ok(look(pid)?.programs_kib) } else { Ok(0) }
}

fn all(pid: u32) -> Result<Look> {
    let mut look = Look::default();
    let mut waiting = vec![(pid, 0)];
    // The process itself comes first.
    let mut program = None;
    while let Some((next, parents_stack)) = waiting.pop() {
        let mut below = Vec::new();
        let one = match one(next, &mut below) {
            Ok(one) => one,
            // A child may have ended meanwhile; the process itself must be there.
            Err(_) if next != pid => continue,
            Err(e) => return Err(e),
        };
        look.unborn |= one.stack != 0 && one.stack == parents_stack;
        waiting.extend(below.into_iter().map(|child| (child, one.stack)));
        look.cost.pss_kib += one.cost.pss_kib;
        look.cost.cpu_ns += one.cost.cpu_ns;
        look.cost.ended_ns += one.cost.ended_ns;
        look.cost.switches += one.cost.switches;
        if *program.get_or_insert_with(|| one.program.clone()) != one.program {
            look.programs_kib += one.cost.pss_kib;
        } else {
            look.parts.push((one.name, one.cost.pss_kib));
        }
    }
    Ok(look)
}

struct One {
    cost: Cost,
    name: String,
    program: PathBuf,
    /// Where its stack begins: by chance, anew for each program.
    stack: u64,
}

fn one(pid: u32, children: &mut Vec<u32>) -> Result<One> {
    let folder = Path::new("/proc").join(pid.to_string());
    let mut cost = Cost {
        pss_kib: field(&fs::read_to_string(folder.join("smaps_rollup"))?, "Pss:")?,
        ..Cost::default()
    };
    let stat = fs::read_to_string(folder.join("stat"))?;
    cost.ended_ns = ended(&stat)?;
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
    Ok(One {
        cost,
        name: stat
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(')'))
            .map_or_else(String::new, |(name, _)| name.to_owned()),
        program: fs::read_link(folder.join("exe"))?,
        stack: after_name(&stat)?.nth(25).context("a short stat")?.parse()?,
    })
}

/// The words of `/proc/<pid>/stat` from the third on; the second one is a name in brackets.
fn after_name(stat: &str) -> Result<std::str::SplitAsciiWhitespace<'_>> {
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    Ok(rest.split_ascii_whitespace())
}

/// `cutime` and `cstime` of `/proc/<pid>/stat`, the 16th and 17th word.
fn ended(stat: &str) -> Result<u64> {
    let ticks = after_name(stat)?
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
                let alone = one(id, &mut below)?.cost;
                Ok(holds(all, alone).then_some(all))
            })
        };
        let first = seen("the child that ended", &|all, _| all.ended_ns > 0).unwrap();
        let later = seen("more time on a CPU", &|all, _| all.cpu_ns > first.cpu_ns).unwrap();
        let both = seen("the child that lives", &|all, alone| all.pss_kib > alone.pss_kib);
        let programs = wait::until("another program", Duration::from_secs(60), || {
            Ok(Some(programs(id)?).filter(|kib| *kib > 0))
        });
        let below = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        for child in below.split_ascii_whitespace() {
            Command::new("kill").arg(child).status().unwrap();
        }
        assert!(both.unwrap().pss_kib > 0 && later.ended_ns >= first.ended_ns);
        assert!(programs.unwrap() > 0, "sleep is another program");
        assert!(cost(id).is_err(), "it has ended");
    }

    #[test]
    fn a_child_that_becomes_no_program_counts_after_all() {
        // A part of a shell in brackets is the shell itself, forked; it waits for the end of its input.
        let mut shell = Command::new("sh")
            .args(["-c", "exec 3<&0; (read -r x <&3; :) & wait"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = shell.id();
        let both = wait::until("the part of it", Duration::from_secs(60), || {
            Ok(Some(look(id)?).filter(|look| look.parts.len() == 2))
        })
        .unwrap();
        assert_eq!((both.programs_kib, programs(id).unwrap()), (0, 0), "one program");
        assert!(both.unborn && both.parts.iter().all(|(name, kib)| name == "sh" && *kib > 0));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
