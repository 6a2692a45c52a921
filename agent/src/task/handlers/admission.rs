//! Whether one more machine fits beside all that are here: those of QEMU alone, and those of slices.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::files::at;
use crate::machine::admission::{self, Ask, Full, Holding, Room};
use crate::machine::held;
use crate::slice::statistics::Statistics;
use crate::task::context::Context;
use crate::task::effect::Machine;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::owner::SLICE;

/// What a provision notes once its machine was let in.
pub(super) const ADMITTED: &str = "admitted";

/// Who is let in next sees those that are being made.
static ADMISSION: Mutex<()> = Mutex::new(());

/// Lets one in; nobody else is while the guard is held: until what it takes is written down. `most` bounds the number of
/// QEMU's own machines.
///
/// # Errors
/// What cannot be read of the host; inside, what there is too little of.
pub(super) fn admit(
    c: &Context<'_>,
    ask: Ask,
    most: Option<u32>,
) -> Result<Result<MutexGuard<'static, ()>, Full>, Failure> {
    let one = ADMISSION.lock().unwrap_or_else(PoisonError::into_inner);
    let host = c.host();
    let resident = |name: &str| Machine::group_of(&host.roots.sys, &host.dir.group(name)).resident_mib();
    let all = held(&host.dir.machines(), &resident);
    // Before libvirt was first asked, nothing is known of their memory.
    let known = Statistics::load(&host.dir).unwrap_or_default();
    let all = with_slices(all, &c.promised(SLICE, ADMITTED), &known);
    Ok(admission::admit(ask, all, room(host, most)?).map(|()| one))
}

/// What slices' machines hold as well, by what their tasks have noted.
fn with_slices(all: Holding, slices: &[BTreeMap<String, Value>], known: &Statistics) -> Holding {
    slices.iter().fold(all, |all, facts| {
        let number = |name: &str| facts.get(name).and_then(Value::as_u64).unwrap_or(0);
        let uuid = facts.get("uuid").and_then(Value::as_str);
        let of = known
            .machines
            .iter()
            .find(|m| Some(m.domain_uuid.as_str()) == uuid);
        // KiB.
        let resident = of.and_then(|m| m.values.get("balloon.rss")).map(|kib| kib >> 10);
        let vcpus = u32::try_from(number("public.vcpus")).unwrap_or(u32::MAX);
        all.beside(vcpus, number("public.memory_mib"), resident)
    })
}

fn room(host: &Host, most: Option<u32>) -> Result<Room, Failure> {
    let (bounds, machines) = (&host.policy.machines, host.dir.machines());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = crate::probe::memory::MemoryProbe::new(&host.roots)
        .read()
        .ok_or_else(|| Failure::failed("/proc/meminfo cannot be read"))?;
    let disk = rustix::fs::statvfs(&machines).map_err(|e| at("read", &machines)(e.into()))?;
    let mib = |bytes: u64| bytes >> 20;
    Ok(Room {
        vcpus: u32::try_from(cores)
            .unwrap_or(u32::MAX)
            .saturating_sub(bounds.reserve_vcpus),
        memory_mib: mib(memory.total).saturating_sub(u64::from(bounds.reserve_memory_mib)),
        memory_available_mib: mib(memory.available),
        disk_free: disk.f_bavail.saturating_mul(disk.f_frsize),
        machines: most.unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::slice::statistics::OfMachine;

    #[test]
    fn a_slices_machine_holds_what_its_task_noted_and_what_it_touched_is_counted_once() {
        let facts = |uuid: &str| -> BTreeMap<String, Value> {
            let facts = [
                ("uuid", json!(uuid)),
                ("public.vcpus", json!(3)),
                ("public.memory_mib", json!(1000)),
            ];
            facts.map(|(name, value)| (name.to_owned(), value)).into()
        };
        let said = "balloon.rss=512000\n";
        let known = Statistics {
            machines: vec![OfMachine::read(said, ("vm-1", "u1"), 1)],
        };
        let all = with_slices(Holding::default(), &[facts("u1"), facts("u2")], &known);
        let promised = 1000 + admission::OVERHEAD_MIB;
        assert_eq!(
            (all.machines, all.vcpus, all.memory_mib, all.untouched_mib),
            (0, 6, 2 * promised, 2 * promised - 500)
        );
    }
}
