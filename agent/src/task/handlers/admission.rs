//! Whether one more machine fits beside all that are here: those of QEMU alone, and those of slices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use crate::files::at;
use crate::machine::admission::{self, Ask, Full, Holding, Room};
use crate::machine::held;
use crate::probe::tool::find;
use crate::slice::libvirt::Libvirt;
use crate::slice::statistics::{OfMachine, Statistics};
use crate::task::context::Context;
use crate::task::effect::Machine;
use crate::task::exec::ExecError;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::owner::SLICE;
use crate::task::stop::Stop;

/// What a provision notes once its machine was let in.
pub(super) const ADMITTED: &str = "admitted";

/// How long libvirt may take for one answer: all that are to be let in wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let one = c.stop().lock(&ADMISSION)?;
    let host = c.host();
    let resident = |name: &str| Machine::group_of(&host.roots.sys, &host.dir.group(name)).resident_mib();
    let all = held(&host.dir.machines(), &resident);
    let slices = c.promised(SLICE, ADMITTED);
    let all = with_slices(all, &slices, &resident_of(c, &slices)?);
    Ok(admission::admit(ask, all, room(host, most)?).map(|()| one))
}

/// MiB that slices' machines have in memory, by UUID. libvirt is asked now: what it said last may be from before a machine
/// was made, and what that has taken since would count as taken, and as yet to be taken. Where it is silent that counts.
fn resident_of(
    c: &Context<'_>,
    slices: &[BTreeMap<String, Value>],
) -> Result<BTreeMap<String, u64>, Failure> {
    if slices.is_empty() {
        return Ok(BTreeMap::new());
    }
    let uuids = slices.iter().filter_map(uuid_of);
    let host = c.host();
    let known = Statistics::load(&host.dir).unwrap_or_default();
    let of = |m: OfMachine| Some((m.domain_uuid.clone(), resident(&m)?));
    let known: BTreeMap<String, u64> = known.machines.into_iter().filter_map(of).collect();
    let programs = host.policy.machines.programs.as_ref();
    let virsh = find("virsh", programs.map(|p| Path::new(p.as_str())));
    let now = match virsh {
        Some(virsh) => {
            let libvirt = Libvirt::new(&virsh).within(PATIENCE);
            asked(&libvirt, uuids, &known, c.stop())
        }
        None => Ok(BTreeMap::new()),
    };
    c.check()?;
    Ok(now.unwrap_or_else(|e| {
        tracing::warn!("libvirt does not say how much memory machines have: {e}");
        known
    }))
}

/// Of those that run; `known` is what it said last.
fn asked<'a>(
    libvirt: &Libvirt,
    uuids: impl Iterator<Item = &'a str>,
    known: &BTreeMap<String, u64>,
    stop: &Stop,
) -> Result<BTreeMap<String, u64>, ExecError> {
    let running = libvirt.running(stop)?;
    let of = |uuid: &'a str| {
        let said = libvirt.stats(uuid, stop).ok();
        let now = said.and_then(|said| resident(&OfMachine::read(&said, ("", uuid), 0)));
        // One that runs has taken what it was promised, for all that anybody knows: it counts once, and not as yet to be
        // taken as well.
        let mib = now.or_else(|| known.get(uuid).copied()).unwrap_or(u64::MAX);
        (uuid.to_owned(), mib)
    };
    let runs = |uuid: &&str| running.iter().any(|r| r == uuid);
    Ok(uuids.filter(runs).map(of).collect())
}

/// libvirt counts in KiB.
fn resident(of: &OfMachine) -> Option<u64> {
    of.values.get("balloon.rss").map(|kib| kib >> 10)
}

fn uuid_of(facts: &BTreeMap<String, Value>) -> Option<&str> {
    facts.get("uuid").and_then(Value::as_str)
}

/// What slices' machines hold as well, by what their tasks have noted.
fn with_slices(
    all: Holding,
    slices: &[BTreeMap<String, Value>],
    resident: &BTreeMap<String, u64>,
) -> Holding {
    slices.iter().fold(all, |all, facts| {
        let number = |name: &str| facts.get(name).and_then(Value::as_u64).unwrap_or(0);
        let resident = uuid_of(facts).and_then(|u| resident.get(u).copied());
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
    use crate::stand_in::stand_in;

    fn facts(uuid: &str) -> BTreeMap<String, Value> {
        let facts = [
            ("uuid", json!(uuid)),
            ("public.vcpus", json!(3)),
            ("public.memory_mib", json!(1000)),
        ];
        facts.map(|(name, value)| (name.to_owned(), value)).into()
    }

    #[test]
    fn a_slices_machine_holds_what_its_task_noted_and_what_it_touched_is_counted_once() {
        let resident = BTreeMap::from([("u1".to_owned(), 500)]);
        let all = with_slices(Holding::default(), &[facts("u1"), facts("u2")], &resident);
        let promised = 1000 + admission::OVERHEAD_MIB;
        assert_eq!(
            (all.machines, all.vcpus, all.memory_mib, all.untouched_mib),
            (0, 6, 2 * promised, 2 * promised - 500)
        );
    }

    #[test]
    fn what_a_machine_has_touched_since_it_was_made_is_known_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let program = dir.path().join(name);
            stand_in(&program, text);
            Libvirt::new(&program)
        };
        // `u1`, `u3` and `u4` run, two of them without a word; `u2` is being made, `x` is somebody else's.
        let answers = script(
            "answers",
            "#!/bin/sh\ncase \"$*\" in\n*list*) printf 'u1\\nx\\nu3\\nu4\\n' ;;\n*domstats*u1) echo '  balloon.rss=512000' ;;\n*) exit 1 ;;\nesac\n",
        );
        let stop = Stop::after(Duration::from_secs(60));
        let known = ["u1", "u2", "u3"].map(|u| (u.to_owned(), 250)).into();
        let resident = asked(&answers, ["u1", "u2", "u3", "u4"].into_iter(), &known, &stop).unwrap();
        let expected = [("u1", 500), ("u3", 250), ("u4", u64::MAX)];
        assert_eq!(resident, expected.map(|(u, mib)| (u.to_owned(), mib)).into());
        // Of the last nothing is still to be taken.
        let one = with_slices(Holding::default(), &[facts("u4")], &resident);
        assert_eq!(
            (one.memory_mib, one.untouched_mib),
            (1000 + admission::OVERHEAD_MIB, 0)
        );
        let silent = script("silent", "#!/bin/sh\nexit 1\n");
        asked(&silent, ["u1"].into_iter(), &known, &stop).unwrap_err();
    }
}
