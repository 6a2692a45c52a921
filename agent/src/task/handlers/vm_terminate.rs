//! `vm.terminate`: ACPI, grace, kill; everything of the machine away; and a look whether it is.

use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{Params, VmId, VmProof, VmTerminate, VmTerminated};
use serde_json::Value;

use super::vm_launch::KIND;
use crate::machine::qmp::Qmp;
use crate::machine::{Folder, Lease, Moment};
use crate::task::context::Context;
use crate::task::effect::process::is_alive;
use crate::task::effect::{Effect, Machine, Mark, Trace};
use crate::task::failure::Failure;
use crate::task::handler::{Handler, Recovery};
use crate::task::host::Host;
use crate::task::ledger::Holding;
use crate::task::owner::Owner;

/// How long the monitor may take to pass the power button on.
const PATIENCE: Duration = Duration::from_secs(5);

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminate;

impl Handler for Terminate {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::VmTerminate(p) => Some(Owner::new(KIND, p.vm_id.as_str())),
            _ => None,
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::VmTerminate(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        serde_json::to_value(terminate(context, p)?).map_err(Failure::failed)
    }
}

fn terminate(context: &mut Context<'_>, p: &VmTerminate) -> Result<VmTerminated, Failure> {
    let owner = Owner::new(KIND, p.vm_id.as_str());
    let folder = Folder::new(&context.host().dir.machines(), &p.vm_id)?;
    context.phase("shutdown")?;
    let holdings = context.holdings(&owner);
    let mut hard_stopped = false;
    for holding in &holdings {
        if let Some((pid, start)) = process(holding).filter(|(p, s)| is_alive(context.host(), *p, *s)) {
            press(&folder);
            // Whoever asks for its end does not lengthen its lease.
            let grace = Duration::from_secs(u64::from(p.graceful_timeout_seconds));
            let grace = grace.min(lease_left(context.host(), holding));
            hard_stopped |= !gone(context, pid, start, grace)?;
        }
    }
    context.phase("release")?;
    let undone = context.release(&owner)?;
    if let Some(why) = undone.stuck.first() {
        return Err(Failure::new(Code::OutcomeUnknown, why));
    }
    context.phase("verify")?;
    let left = !context.holdings(&owner).is_empty();
    let proof = look(context.host(), &folder, &p.vm_id, &holdings, left)?;
    if !proof.all() {
        let what = format!("something of {} is left: {proof:?}", p.vm_id);
        return Err(Failure::new(Code::OutcomeUnknown, what));
    }
    Ok(VmTerminated {
        vm_id: p.vm_id.clone(),
        existed: !holdings.is_empty(),
        hard_stopped,
        verified: true,
        proof,
        timings: context.timings(),
    })
}

/// QEMU and the time of its start.
pub(super) fn process(holding: &Holding) -> Option<(u32, u64)> {
    holding
        .effects
        .iter()
        .find_map(|(_, effect, trace)| match (effect, trace) {
            (Effect::Machine(_), Some(Trace::Process { pid, start })) => Some((*pid, *start)),
            _ => None,
        })
}

/// What is left of its lease. Without one, or a clock to measure it by, a machine must not go on for ever.
pub(super) fn lease_left(host: &Host, holding: &Holding) -> Duration {
    let lease = holding.facts.get("lease");
    let lease = lease.and_then(|l| serde_json::from_value::<Lease>(l.clone()).ok());
    match (lease, Moment::now(&host.roots.proc)) {
        (Some(lease), Ok(now)) => lease.left(&now),
        _ => Duration::ZERO,
    }
}

fn machine(holding: &Holding) -> Option<(Mark, &Machine)> {
    holding.effects.iter().find_map(|(step, effect, _)| match effect {
        Effect::Machine(m) => {
            let mark = Mark {
                task_id: holding.task_id.clone(),
                step: *step,
            };
            Some((mark, m))
        }
        _ => None,
    })
}

/// Presses the power button. A monitor that does not answer changes nothing: the machine is killed in the end.
pub(super) fn press(folder: &Folder) {
    let pressed =
        Qmp::connect(&folder.control(), PATIENCE).and_then(|mut q| q.execute("system_powerdown", None));
    if let Err(e) = pressed {
        tracing::warn!("the power button cannot be pressed: {e}");
    }
}

/// Whether it ends by itself in time.
fn gone(context: &Context<'_>, pid: u32, start: u64, grace: Duration) -> Result<bool, Failure> {
    let begun = Instant::now();
    loop {
        if !is_alive(context.host(), pid, start) {
            return Ok(true);
        }
        if begun.elapsed() >= grace {
            return Ok(false);
        }
        context.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Looks at each thing that a machine consists of.
fn look(
    host: &Host,
    folder: &Folder,
    vm_id: &VmId,
    before: &[Holding],
    held: bool,
) -> Result<VmProof, Failure> {
    let gone = |path: &std::path::Path| {
        std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    let mut process_gone = true;
    for holding in before {
        if let Some((pid, start)) = process(holding) {
            process_gone &= !is_alive(host, pid, start);
        }
        if let Some((mark, machine)) = machine(holding) {
            process_gone &= machine.marked(host, &mark)?.is_empty();
        }
    }
    Ok(VmProof {
        process_gone,
        disk_gone: gone(&folder.disk()),
        seed_gone: gone(&folder.seed()),
        sockets_gone: gone(&folder.control()) && gone(&folder.events()),
        folder_gone: gone(folder.path()),
        group_gone: !Machine::group_of(&host.roots.sys, &host.dir.group(vm_id.as_str())).exists(),
        lease_gone: !held,
    })
}
