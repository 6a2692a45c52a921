//! `latency`: round trips to other nodes, the gateway and the chain.

use schemars::JsonSchema;
use serde::Serialize;

use super::fields::Fields;
use super::value::Percent;
use crate::code::Code;
use crate::id::NodeId;
use crate::refusal::Refusal;
use crate::time::Rfc3339;

/// Most measurements that one heartbeat may hold.
pub const MAX_MEASUREMENTS: usize = 64;

/// Round trips; absent is unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Latency {
    /// One entry for each node measured, at most 64.
    #[schemars(with = "Option<Vec<LatencyMeasurement>>", length(max = 64), default)]
    pub measurements: Vec<LatencyMeasurement>,
    /// To the provider daemon, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_latency_us: Option<u64>,
    /// To the chain, estimated, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_latency_ms: Option<u64>,
    /// Mean over the cluster's nodes measured, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_cluster_latency_us: Option<u64>,
}

/// One node's round trip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LatencyMeasurement {
    /// The node measured.
    pub target_node_id: NodeId,
    /// Round trip in microseconds; absent only where every packet was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// Packets lost.
    pub packet_loss_percent: Percent,
    /// When.
    pub measured_at: Rfc3339,
}

impl Latency {
    pub(crate) fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        let measurements = f
            .list("measurements", MAX_MEASUREMENTS)?
            .into_iter()
            .enumerate()
            .map(|(i, raw)| {
                let path = f.path(&format!("measurements[{i}]"));
                if !raw.get().starts_with('{') {
                    return Err(Refusal::field(Code::InvalidField, path, "must be an object"));
                }
                LatencyMeasurement::read(&Fields::open(&path, Code::InvalidField, raw.get())?)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            measurements,
            gateway_latency_us: f.amount("gateway_latency_us")?,
            chain_latency_ms: f.amount("chain_latency_ms")?,
            avg_cluster_latency_us: f.amount("avg_cluster_latency_us")?,
        })
    }
}

impl LatencyMeasurement {
    fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        let measurement = Self {
            target_node_id: f
                .text("target_node_id")?
                .ok_or_else(|| f.refuse("target_node_id", "is required"))?,
            latency_us: f.amount("latency_us")?,
            packet_loss_percent: f.required("packet_loss_percent", "an integer from 0 to 100")?,
            measured_at: f
                .text("measured_at")?
                .ok_or_else(|| f.refuse("measured_at", "is required"))?,
        };
        if !measurement.is_whole() {
            return Err(f.refuse("latency_us", "is required unless packet_loss_percent is 100"));
        }
        Ok(measurement)
    }

    /// Only what never came back has no round trip.
    pub(super) fn is_whole(&self) -> bool {
        self.latency_us.is_some() || self.packet_loss_percent.get() >= 100
    }
}
