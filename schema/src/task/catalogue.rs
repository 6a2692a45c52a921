use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use super::kind::{NodeMode, TaskType};
use super::{output, params};

/// A type with its schemas.
#[derive(Debug, Clone, Serialize)]
pub struct CatalogueEntry {
    /// The type.
    #[serde(rename = "type")]
    pub kind: TaskType,
    /// The mode that the node must have; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<NodeMode>,
    /// Whether a person must approve each task.
    pub approval: bool,
    /// Whether it changes the host.
    pub mutates: bool,
    /// Seconds that it may run at most.
    pub time_limit_seconds: u64,
    /// JSON Schema of `params`.
    pub params: Value,
    /// JSON Schema of `result` of a completed task.
    pub result: Value,
}

fn schema<T: JsonSchema>() -> Value {
    let schema: Schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>();
    schema.to_value()
}

/// Every type, in the catalogue's order.
#[must_use]
pub fn catalogue() -> Vec<CatalogueEntry> {
    TaskType::ALL.iter().copied().map(entry).collect()
}

fn entry(kind: TaskType) -> CatalogueEntry {
    let (params, result) = match kind {
        TaskType::SliceTopologyDiscover => {
            (schema::<params::TopologyDiscover>(), schema::<output::Topology>())
        }
        TaskType::SliceVmProvision => (
            schema::<params::SliceVmProvision>(),
            schema::<output::SliceVmProvisioned>(),
        ),
        TaskType::SliceVmRelease => (
            schema::<params::SliceVmRelease>(),
            schema::<output::SliceVmReleased>(),
        ),
        TaskType::VmLaunch => (schema::<params::VmLaunch>(), schema::<output::VmLaunched>()),
        TaskType::VmTerminate => (schema::<params::VmTerminate>(), schema::<output::VmTerminated>()),
        TaskType::AllocationProvisionUser => (
            schema::<params::ProvisionUser>(),
            schema::<output::UserProvisioned>(),
        ),
        TaskType::AllocationDeprovisionUser => (
            schema::<params::DeprovisionUser>(),
            schema::<output::UserDeprovisioned>(),
        ),
        TaskType::DiagHealthProbe => (schema::<params::HealthProbe>(), schema::<output::HealthProbed>()),
        TaskType::NodePrerequisitesInstall => (
            schema::<params::PrerequisitesInstall>(),
            schema::<output::PrerequisitesInstalled>(),
        ),
    };
    CatalogueEntry {
        kind,
        mode: kind.mode(),
        approval: kind.needs_approval(),
        mutates: kind.mutates(),
        time_limit_seconds: kind.time_limit_seconds(),
        params,
        result,
    }
}
