use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a node is let: as one machine, or in slices. A task of the other mode is refused (`wrong_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeMode {
    /// Virtual machines, each with devices of its own.
    Slice,
    /// The whole machine to one tenant.
    WholeNode,
}

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $mode:expr, $approval:literal, $mutates:literal, $limit:literal;)*) => {
        /// What a task asks for: the whole catalogue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum TaskType {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl TaskType {
            /// Every type.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word in JSON and in the signed bytes.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The mode that a node must have; none: any.
            #[must_use]
            pub fn mode(self) -> Option<NodeMode> {
                match self { $(Self::$name => $mode,)* }
            }

            /// Whether a person must approve each task of this type before it is delivered.
            #[must_use]
            pub fn needs_approval(self) -> bool {
                match self { $(Self::$name => $approval,)* }
            }

            /// Whether it changes the host.
            #[must_use]
            pub fn mutates(self) -> bool {
                match self { $(Self::$name => $mutates,)* }
            }

            /// Seconds that it may run at most, wipes of disks aside, which bound themselves. Whoever hears nothing for that long does not know how it ended.
            #[must_use]
            pub fn time_limit_seconds(self) -> u64 {
                match self { $(Self::$name => $limit,)* }
            }
        }
    };
}

types! {
    /// What the host could offer as slices; changes nothing.
    SliceTopologyDiscover = "slice.topology_discover", None, false, false, 300;
    /// A virtual machine on free slots.
    SliceVmProvision = "slice.vm_provision", Some(NodeMode::Slice), false, true, 7200;
    /// Takes a slice's machine down and proves it clean.
    SliceVmRelease = "slice.vm_release", Some(NodeMode::Slice), false, true, 14_400;
    /// A machine of limited life, without libvirt.
    VmLaunch = "vm.launch", Some(NodeMode::Slice), false, true, 900;
    /// Ends such a machine.
    VmTerminate = "vm.terminate", Some(NodeMode::Slice), false, true, 1200;
    /// A tenant's user on a whole node.
    AllocationProvisionUser = "allocation.provision_user", Some(NodeMode::WholeNode), false, true, 300;
    /// Takes that user away again.
    AllocationDeprovisionUser = "allocation.deprovision_user", Some(NodeMode::WholeNode), false, true, 900;
    /// Whether the node is fit; changes nothing.
    DiagHealthProbe = "diag.health_probe", None, false, false, 120;
    /// Installs what slices need, from the list that the node's policy allows.
    NodePrerequisitesInstall = "node.prerequisites_install", None, true, true, 3600;
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not in the catalogue; see virtengine-provider task catalog")]
pub struct TaskTypeError;

impl FromStr for TaskType {
    type Err = TaskTypeError;
    fn from_str(s: &str) -> Result<Self, TaskTypeError> {
        Self::ALL
            .iter()
            .copied()
            .find(|t| t.as_str() == s)
            .ok_or(TaskTypeError)
    }
}
