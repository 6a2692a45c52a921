//! A PCI function with `vfio-pci`. That is where it rests: nothing is taken back from a tenant by the host's own
//! drivers, so that undoing brings it there too.

use std::path::Path;

use hpc_schema::task::{HostPath, PciAddress};
use serde::{Deserialize, Serialize};

use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::slice::pci;

/// A function that is handed through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passthrough {
    /// Where the kernel shows devices.
    pub sys: HostPath,
    /// The function.
    pub address: PciAddress,
}

impl Passthrough {
    fn bind(&self) -> Result<(), EffectError> {
        Ok(pci::bind(Path::new(self.sys.as_str()), &self.address)?)
    }
}

impl Act for Passthrough {
    fn apply(&self, _scene: Scene<'_>, _note: &mut Note<'_>) -> Result<(), EffectError> {
        self.bind()
    }

    fn undo(&self, _scene: Scene<'_>, _trace: Option<&Trace>) -> Result<(), EffectError> {
        self.bind()
    }

    fn observe(&self, _scene: Scene<'_>, _trace: Option<&Trace>) -> Result<Seen, EffectError> {
        Ok(if pci::is_bound(Path::new(self.sys.as_str()), &self.address) {
            Seen::Absent
        } else {
            Seen::Ours
        })
    }

    fn shown(&self) -> String {
        format!("function {}", self.address)
    }
}
