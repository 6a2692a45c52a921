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

/// The first sample of what is scraped from now on, as it is scraped; it must arrive.
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
        let missing = match (sample, exporter_series, statistics_series) {
            (None, ..) => "libvirt gives no statistics of the machine".to_owned(),
            (_, Some(0), _) => "the guest's exporter gives nothing".to_owned(),
            (.., Some(0)) => format!(
                "the agent gives no statistics of the machine at {}; does virtengine-node-agent run?",
                statistics.as_deref().unwrap_or_default()
            ),
            (Some(sample), ..) => {
                return Ok(GuestSample {
                    exporter_series,
                    statistics_series,
                    ..sample
                });
            }
        };
        if begun.elapsed() >= SAMPLE {
            return Err(Failure::new(
                Code::TaskTimeout,
                format!("{missing} within {SAMPLE:?}"),
            ));
        }
        c.check()?;
        std::thread::sleep(LOOK);
    }
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
