use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::files::Durability;
use crate::slice::libvirt::Libvirt;
use crate::slice::statistics::{OfMachine, Statistics};
use crate::state::write_json;
use crate::task::effect::Effect;
use crate::task::host::Host;
use crate::task::journal::lock;
use crate::task::ledger::Ledger;
use crate::task::steward::Steward;
use crate::task::stop::Stop;

/// Between two looks at machines: shorter than scrapes mostly are.
const LOOK: Duration = Duration::from_secs(10);
/// Between two looks whether there is one.
const NONE: Duration = Duration::from_secs(1);
/// How long libvirt may take for one machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks libvirt for figures of slices' machines, from their making on, and writes them down for who shows them.
#[derive(Debug, Default)]
pub(super) struct SliceSteward {
    told: bool,
}

/// A domain that a task has made and that is not undone.
struct Made {
    virsh: String,
    name: String,
    uuid: String,
}

fn domains(ledger: &Ledger) -> Vec<Made> {
    let mut all = Vec::new();
    for journal in ledger.all() {
        let journal = lock(&journal);
        let made = journal.story().steps.iter().filter(|s| s.remains());
        all.extend(made.filter_map(|s| match &s.effect {
            Effect::Domain(d) => Some(Made {
                virsh: d.virsh.to_string(),
                name: d.name.clone(),
                uuid: d.uuid.clone(),
            }),
            _ => None,
        }));
    }
    all
}

impl Steward for SliceSteward {
    fn name(&self) -> &'static str {
        "slices"
    }

    fn look(&mut self, host: &Host, ledger: &Arc<Ledger>) -> Duration {
        let domains = domains(ledger);
        if domains.is_empty() && !self.told {
            return NONE;
        }
        let of = |d: &Made| {
            let libvirt = Libvirt::new(Path::new(&d.virsh));
            // One that does not run yet, or any more, has no figures.
            let said = libvirt.stats(&d.uuid, &Stop::after(PATIENCE)).ok()?;
            let of = OfMachine::read(&said, (&d.name, &d.uuid), host.clock.seconds());
            of.values.contains_key("cpu.time").then_some(of)
        };
        let all = Statistics {
            machines: domains.iter().filter_map(of).collect(),
        };
        // As long as there are machines, whether they run or not: the file must not keep what was.
        self.told = !domains.is_empty();
        if let Err(e) = write_json(&host.dir.statistics(), &all, 0o644, Durability::Atomic) {
            tracing::warn!("{e}");
        }
        if self.told { LOOK } else { NONE }
    }
}
