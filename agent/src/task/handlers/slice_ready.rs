//! Whether a slice's machine is what was promised: reached by SSH, ready, scraped, and as fast as it has to be.

use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{GuestSample, Performance, Readiness};

use super::slice_work::Work;
use crate::slice::libvirt::Libvirt;
use crate::slice::{READY_FILE, SliceTools, probe, ssh, telemetry};
use crate::task::context::Context;
use crate::task::exec::{ExecError, Program};
use crate::task::failure::Failure;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A look whether libvirt still runs it, every so many.
const ASKED: u32 = 8;
/// How long the first sample may take.
const SAMPLE: Duration = Duration::from_secs(60);
/// How long the agent's own interface is waited for: what it shows is asked of libvirt every ten seconds.
const SHOWN: Duration = Duration::from_secs(25);
/// How long the measurements may take.
const MEASURED: Duration = Duration::from_secs(300);
/// What SSH ends with where it is not let in.
const NOT_IN: i32 = 255;
/// The ready file, asked for by our own text.
const ASK: &str = "test -f /var/lib/gpuaas/slice-ready";

/// Waits until SSH lets us in and the ready file is there.
pub(super) fn wait(c: &mut Context<'_>, work: &Work<'_>, tools: &SliceTools) -> Result<Readiness, Failure> {
    let begun = Instant::now();
    let limit = Duration::from_secs(u64::from(work.p.ready_timeout_seconds));
    let libvirt = Libvirt::new(&tools.virsh);
    let (mut reached, mut last) = (false, String::new());
    for look in 0u32.. {
        c.check()?;
        match login(work, tools, ASK)?.ask(c.stop()) {
            Ok(out) if out.code == 0 => break,
            Ok(out) if out.code == NOT_IN => {
                last = String::from_utf8_lossy(&out.stderr)
                    .trim()
                    .chars()
                    .take(200)
                    .collect();
            }
            Ok(_) => {
                if !std::mem::replace(&mut reached, true) {
                    c.say("SSH lets us in; the ready file is not there yet");
                }
                last = format!("{READY_FILE} is not there");
            }
            Err(ExecError::Late { .. }) => "no answer".clone_into(&mut last),
            Err(e) => return Err(e.into()),
        }
        if look % ASKED == ASKED - 1 && !libvirt.runs(&work.uuid, c.stop())? {
            return Err(Failure::failed("the machine ended before it was ready"));
        }
        if begun.elapsed() >= limit {
            let what = format!("the machine was not ready within {limit:?}: {last}");
            return Err(Failure::new(Code::TaskTimeout, what));
        }
        std::thread::sleep(LOOK);
    }
    Ok(Readiness {
        ssh: true,
        ready_file: true,
        ready_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

fn login(work: &Work<'_>, tools: &SliceTools, command: &'static str) -> Result<Program, Failure> {
    let whom = (work.p.default_username.as_str(), work.first()?.private_ip);
    Ok(ssh::program(&tools.ssh, &work.folder, whom, command)?)
}

/// The first sample of what is scraped from now on, as it is scraped: it must arrive from libvirt, and from the guest's
/// exporter. That the agent's own interface is silent is no fault of the machine: the result says so.
pub(super) fn sample(c: &Context<'_>, work: &Work<'_>, tools: &SliceTools) -> Result<GuestSample, Failure> {
    let libvirt = Libvirt::new(&tools.virsh);
    let slices = c.host().policy.slices.clone();
    let address = work.first()?.private_ip;
    let exporter = slices
        .exporter_port
        .map(|port| format!("http://{address}:{port}/metrics"));
    // Elsewhere it is asked for credentials, which Prometheus has and we have not.
    let statistics = slices.statistics.filter(|_| slices.statistics_open);
    let statistics = statistics.map(|url| url.page(work.p));
    let begun = Instant::now();
    loop {
        let sample = telemetry::sample(&libvirt.stats(&work.uuid, c.stop())?);
        let exporter_series = scrape(c, tools, exporter.as_deref())?;
        let statistics_series = scrape(c, tools, statistics.as_deref())?;
        let waited = begun.elapsed();
        let missing = match arrived(sample, exporter_series, statistics_series, waited) {
            Ok(sample) => {
                if let Some(url) = statistics.filter(|_| statistics_series == Some(0)) {
                    c.say(&format!(
                        "the agent's interface shows nothing of the machine at {url}; does virtengine-node-agent run?"
                    ));
                }
                return Ok(sample);
            }
            Err(missing) => missing,
        };
        if waited >= SAMPLE {
            let what = format!("{missing} within {SAMPLE:?}");
            return Err(Failure::new(Code::TaskTimeout, what));
        }
        c.check()?;
        std::thread::sleep(LOOK);
    }
}

/// The sample, or what it lacks as yet.
fn arrived(
    sample: Option<GuestSample>,
    exporter_series: Option<u64>,
    statistics_series: Option<u64>,
    waited: Duration,
) -> Result<GuestSample, &'static str> {
    let sample = sample.ok_or("libvirt gives no statistics of the machine")?;
    if exporter_series == Some(0) {
        return Err("the guest's exporter gives nothing");
    }
    if statistics_series == Some(0) && waited < SHOWN {
        return Err("the agent's interface shows nothing");
    }
    Ok(GuestSample {
        exporter_series,
        statistics_series,
        ..sample
    })
}

/// Series that a target gives now; none if there is no such target.
fn scrape(c: &Context<'_>, tools: &SliceTools, url: Option<&str>) -> Result<Option<u64>, Failure> {
    let Some(url) = url else { return Ok(None) };
    let out = Program::new(&tools.curl)
        .flag("--disable")
        .flag("--silent")
        .flag("--fail")
        .flag("--globoff")
        .flag("--noproxy")
        .flag("*")
        .flag("--max-time")
        .flag("10")
        .value(url)?
        .keeping(4 << 20)
        .ask(c.stop())?;
    Ok(Some(match out.code {
        0 => telemetry::series(&String::from_utf8_lossy(&out.stdout)),
        _ => 0,
    }))
}

/// Measures in the guest, and compares with what it must reach.
pub(super) fn measure(c: &Context<'_>, work: &Work<'_>, tools: &SliceTools) -> Result<Performance, Failure> {
    let out = login(work, tools, probe::SHELL)?
        .input(probe::SCRIPT.as_bytes().to_vec())
        .within(MEASURED)
        .run(c.stop())?;
    let said = String::from_utf8_lossy(&out.stdout);
    let performance = probe::parse(&said).ok_or_else(|| {
        let words: String = String::from_utf8_lossy(&out.stderr).chars().take(200).collect();
        Failure::failed(format!("the measurements did not come to their end: {words}"))
    })?;
    let count =
        |with: fn(&hpc_schema::task::SliceSlot) -> bool| work.slots.iter().filter(|s| with(s)).count();
    let gpus = count(|s| s.pci_address.is_some());
    let fabrics = count(|s| s.fabric_device.is_some());
    match probe::below(&performance, &work.p.performance, gpus, fabrics) {
        None => Ok(performance),
        Some(what) => Err(Failure::failed(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_arrives_from_libvirt_and_the_guest_and_the_agent_s_own_interface_may_be_silent() {
        let told = telemetry::sample("cpu.time=430000000\nballoon.current=196608\n");
        let at = |sample: &Option<GuestSample>, exporter, statistics, waited| {
            arrived(sample.clone(), exporter, statistics, waited).map(|s| s.statistics_series)
        };
        let (early, late) = (Duration::ZERO, SHOWN);
        assert!(at(&None, Some(9), Some(9), late).is_err());
        assert!(
            at(&told, Some(0), Some(9), SAMPLE)
                .unwrap_err()
                .contains("exporter")
        );
        assert_eq!(at(&told, Some(9), Some(9), early), Ok(Some(9)));
        // Neither is asked.
        assert_eq!(at(&told, None, None, early), Ok(None));
        assert!(at(&told, Some(9), Some(0), early).is_err());
        assert_eq!(at(&told, Some(9), Some(0), late), Ok(Some(0)));
    }
}
