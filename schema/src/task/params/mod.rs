//! Parameters by type, checked. Unknown members are refused: a task is not half understood.

mod diagnostic;
mod slice;
mod user;
mod vm;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::envelope::MAX_TASK_PARAMS_BYTES;
use super::kind::TaskType;
use crate::code::Code;
use crate::refusal::Refusal;

pub use diagnostic::{HealthCheck, HealthProbe, PrerequisitesInstall, TopologyDiscover};
pub use slice::{DriverStrategy, PerformanceBars, SliceSlot, SliceVmProvision, SliceVmRelease};
pub use user::{DeprovisionUser, ProvisionUser, UserLimits};
pub use vm::{Accel, ImageFormat, VmLaunch, VmNetwork, VmTerminate};

/// The parameters of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Params {
    /// Of `slice.topology_discover`.
    TopologyDiscover(TopologyDiscover),
    /// Of `slice.vm_provision`.
    SliceVmProvision(Box<SliceVmProvision>),
    /// Of `slice.vm_release`.
    SliceVmRelease(SliceVmRelease),
    /// Of `vm.launch`.
    VmLaunch(Box<VmLaunch>),
    /// Of `vm.terminate`.
    VmTerminate(VmTerminate),
    /// Of `allocation.provision_user`.
    ProvisionUser(ProvisionUser),
    /// Of `allocation.deprovision_user`.
    DeprovisionUser(DeprovisionUser),
    /// Of `diag.health_probe`.
    HealthProbe(HealthProbe),
    /// Of `node.prerequisites_install`.
    PrerequisitesInstall(PrerequisitesInstall),
}

/// What a schema alone does not say.
trait Check {
    /// # Errors
    /// The member and what is wrong with it.
    fn check(&self) -> Result<(), (&'static str, String)>;
}

impl Params {
    /// Reads the parameters of a task of this type.
    ///
    /// # Errors
    /// [`Code::InvalidField`] naming what is wrong; [`Code::BodyTooLarge`].
    pub fn parse(kind: TaskType, raw: &RawValue) -> Result<Self, Refusal> {
        let text = raw.get();
        if text.len() > MAX_TASK_PARAMS_BYTES {
            let what = format!("has more than {MAX_TASK_PARAMS_BYTES} bytes");
            return Err(Refusal::field(Code::BodyTooLarge, "task.params", what));
        }
        // serde would read an empty list as a struct without required members.
        if !text.starts_with('{') {
            let what = "must be an object";
            return Err(Refusal::field(Code::InvalidField, "task.params", what));
        }
        Ok(match kind {
            TaskType::SliceTopologyDiscover => Self::TopologyDiscover(read(text)?),
            TaskType::SliceVmProvision => Self::SliceVmProvision(Box::new(read(text)?)),
            TaskType::SliceVmRelease => Self::SliceVmRelease(read(text)?),
            TaskType::VmLaunch => Self::VmLaunch(Box::new(read(text)?)),
            TaskType::VmTerminate => Self::VmTerminate(read(text)?),
            TaskType::AllocationProvisionUser => Self::ProvisionUser(read(text)?),
            TaskType::AllocationDeprovisionUser => Self::DeprovisionUser(read(text)?),
            TaskType::DiagHealthProbe => Self::HealthProbe(read(text)?),
            TaskType::NodePrerequisitesInstall => Self::PrerequisitesInstall(read(text)?),
        })
    }

    /// The type that they are of.
    #[must_use]
    pub fn kind(&self) -> TaskType {
        match self {
            Self::TopologyDiscover(_) => TaskType::SliceTopologyDiscover,
            Self::SliceVmProvision(_) => TaskType::SliceVmProvision,
            Self::SliceVmRelease(_) => TaskType::SliceVmRelease,
            Self::VmLaunch(_) => TaskType::VmLaunch,
            Self::VmTerminate(_) => TaskType::VmTerminate,
            Self::ProvisionUser(_) => TaskType::AllocationProvisionUser,
            Self::DeprovisionUser(_) => TaskType::AllocationDeprovisionUser,
            Self::HealthProbe(_) => TaskType::DiagHealthProbe,
            Self::PrerequisitesInstall(_) => TaskType::NodePrerequisitesInstall,
        }
    }
}

fn read<T: DeserializeOwned + Check>(text: &str) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(&mut reader)
        .and_then(|v| reader.end().map(|()| v))
        .map_err(|e| Refusal::field(Code::InvalidField, "task.params", e))?;
    value.check().map_err(|(member, what)| {
        Refusal::field(Code::InvalidField, format!("task.params.{member}"), what)
    })?;
    Ok(value)
}

/// A number within bounds.
fn within<T: PartialOrd + Copy + std::fmt::Display>(
    member: &'static str,
    value: T,
    bounds: std::ops::RangeInclusive<T>,
) -> Result<(), (&'static str, String)> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err((
        member,
        format!("is {value}, must be {} to {}", bounds.start(), bounds.end()),
    ))
}

/// A list's length within bounds, and no element twice.
fn list<T: Ord>(
    member: &'static str,
    items: &[T],
    bounds: std::ops::RangeInclusive<usize>,
) -> Result<(), (&'static str, String)> {
    if !bounds.contains(&items.len()) {
        let what = format!(
            "has {} elements, must have {} to {}",
            items.len(),
            bounds.start(),
            bounds.end()
        );
        return Err((member, what));
    }
    let unique: std::collections::BTreeSet<&T> = items.iter().collect();
    if unique.len() == items.len() {
        return Ok(());
    }
    Err((member, "has an element twice".to_owned()))
}
