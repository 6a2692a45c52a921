//! NodeMetadata from its parts.

use cosmwasm_std::Storage;
use hpc_schema::cluster::micros_to_millis;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::lifecycle::effective;
use hpc_schema::node::{HealthStatus, HotRecord};
use hpc_schema::registry::{
    JobIds, JobsOnRecord, LatencyOnRecord, NodeView, Params, RelayView, Resources, Totals,
};
use hpc_schema::report::Section;
use hpc_schema::time::UnixSeconds;

use super::identity::Identity;
use super::page::{HotPage, KeyPage, SectionPage, StatsPage};
use super::{drain, resolve};
use crate::cluster::{ClusterHot, ClusterInfo, job_ids};
use crate::error::ContractError;
use crate::keys::Place;

/// What all nodes of an answer share.
pub(crate) struct Reading<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) params: &'a Params,
    pub(crate) now: UnixSeconds,
    pub(crate) cluster_id: &'a ClusterId,
    pub(crate) active: bool,
    pub(crate) job_ids: JobIds,
}

/// A page read for an answer; beside the hot page only what is asked for.
#[derive(Debug)]
pub(crate) struct PageReading {
    pub(crate) hot: HotPage,
    keys: Option<KeyPage>,
    sections: Option<SectionPage>,
    stats: Option<StatsPage>,
    cluster: u32,
    page: u16,
}

impl PageReading {
    pub(crate) fn load(storage: &dyn Storage, cluster: u32, page: u16) -> Result<Self, ContractError> {
        let hot = HotPage::load(storage, cluster, page)?;
        Ok(Self {
            hot,
            keys: None,
            sections: None,
            stats: None,
            cluster,
            page,
        })
    }

    pub(crate) fn place(&self, slot: u8) -> Place {
        Place {
            cluster: self.cluster,
            page: self.page,
            slot,
        }
    }

    fn key(&mut self, storage: &dyn Storage, slot: u8) -> Result<AgentKey, ContractError> {
        let page = match self.keys.take() {
            Some(page) => page,
            None => KeyPage::load(storage, self.cluster, self.page)?,
        };
        let key = page
            .entry(slot)
            .and_then(|(key, _)| AgentKey::from_bytes(*key).ok());
        self.keys = Some(page);
        key.ok_or(ContractError::Corrupt { what: "a node's key" })
    }

    fn sections(&mut self, storage: &dyn Storage) -> Result<&SectionPage, ContractError> {
        let page = match self.sections.take() {
            Some(page) => page,
            None => SectionPage::load(storage, self.cluster, self.page)?,
        };
        Ok(self.sections.insert(page))
    }

    /// Index of a node's GPU type, 0 = none or not among those told apart.
    pub(crate) fn gpu_type(&mut self, storage: &dyn Storage, slot: u8) -> Result<u8, ContractError> {
        Ok(self.sections(storage)?.gpu_type(slot))
    }

    fn statistics(&mut self, storage: &dyn Storage, slot: u8) -> Result<(u16, u64), ContractError> {
        let page = match self.stats.take() {
            Some(page) => page,
            None => StatsPage::load(storage, self.cluster, self.page)?,
        };
        let entry = page.entry(slot);
        self.stats = Some(page);
        Ok(entry)
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        storage: &'a dyn Storage,
        params: &'a Params,
        now: UnixSeconds,
        cluster_id: &'a ClusterId,
        hot: &ClusterHot,
    ) -> Result<Self, ContractError> {
        let job_ids = ClusterInfo::load(storage, cluster_id)?.job_ids;
        Ok(Self {
            storage,
            params,
            now,
            cluster_id,
            active: hot.active,
            job_ids,
        })
    }

    pub(crate) fn effective(&self, record: HotRecord) -> HotRecord {
        effective(record, self.params, self.now)
    }

    /// The second section on record.
    pub(crate) fn section(&self, place: Place) -> Result<Option<Section>, ContractError> {
        let corrupt = |_| ContractError::Corrupt { what: "a section" };
        self.storage
            .get(&place.section())
            .map(|bytes| Section::decode(&bytes).map_err(corrupt))
            .transpose()
    }

    /// Jobs of an effective record, as far as the cluster shows them.
    pub(crate) fn jobs(&self, effective: &HotRecord, section: Option<&Section>) -> JobsOnRecord {
        JobsOnRecord {
            running: effective.has_jobs,
            count: section.map_or(0, |s| u32::from(s.jobs_total)),
            // Stored under a looser setting, they are shown by the present one.
            active_job_ids: section.map_or_else(Vec::new, |s| {
                job_ids::shown(self.job_ids, self.cluster_id, &s.jobs)
            }),
            status: effective.jobs_status(),
        }
    }

    pub(crate) fn node(
        &self,
        page: &mut PageReading,
        slot: u8,
        record: HotRecord,
    ) -> Result<NodeView, ContractError> {
        let (storage, place) = (self.storage, page.place(slot));
        let effective = self.effective(record);
        let identity = Identity::load(storage, place)?;
        let section = self.section(place)?;
        let (recovery_count, total_downtime_seconds) = page.statistics(storage, slot)?;
        let jobs = self.jobs(&effective, section.as_ref());
        let text = |s: &String| Some(s.clone()).filter(|s| !s.is_empty());
        Ok(NodeView {
            node_id: resolve::node_id(storage, place)?,
            cluster_id: self.cluster_id.clone(),
            provider_address: identity.provider_address,
            state: effective.state,
            recorded_state: record.state,
            active: effective.is_schedulable(self.active),
            health_status: record.status.map(|s| HealthStatus::as_str(s).to_owned()),
            last_heartbeat: record.last_seen(),
            age_seconds: record.last_seen().map(|seen| self.now.since(seen)),
            sequence: record.sequence,
            epoch: identity.epoch,
            resources: Resources {
                cpu_cores: u32::from(record.cores),
                memory_gb: record.memory_gb,
                gpus: u32::from(record.gpus),
                gpu_type: section.as_ref().and_then(|s| text(&s.gpu_type)),
                storage_gb: record.storage_gb,
            },
            totals: section.as_ref().map(|s| Totals {
                cpu_cores: s.cores_total,
                memory_gb: s.memory_gb_total,
                gpus: u32::from(s.gpus_total),
                storage_gb: s.storage_gb_total,
            }),
            avg_latency_ms: micros_to_millis(u64::from(record.latency_us)),
            avg_latency_us: record.latency_us,
            latency_measurements: section.as_ref().map_or_else(Vec::new, |s| {
                let on_record = |m: &hpc_schema::report::Measurement| LatencyOnRecord {
                    target_node_id: m.target.to_string(),
                    latency_us: m.latency_us,
                    packet_loss_percent: m.packet_loss_percent,
                    measured_at: UnixSeconds(u64::from(m.measured_at)),
                };
                s.measurements.iter().map(on_record).collect()
            }),
            agent_version: section.as_ref().and_then(|s| text(&s.agent_version)),
            agent_pubkey: page.key(storage, slot)?,
            hostname: identity.hostname,
            hardware_fingerprint: identity.hardware_fingerprint,
            registered_at: identity.registered_at,
            recovery_count: u32::from(recovery_count),
            total_downtime_seconds,
            drain: record.drain.then(|| drain::order(storage, place)).flatten(),
            jobs,
            page: place.page,
            slot,
        })
    }

    pub(crate) fn relay(
        &self,
        page: &mut PageReading,
        slot: u8,
        node_id: NodeId,
        record: HotRecord,
    ) -> Result<RelayView, ContractError> {
        let (storage, place) = (self.storage, page.place(slot));
        let digest = page.sections(storage)?.digest(slot);
        Ok(RelayView {
            node_id,
            page: place.page,
            slot,
            epoch: Identity::load(storage, place)?.epoch,
            sequence: record.sequence,
            agent_pubkey: page.key(storage, slot)?,
            section_digest: digest.iter().map(|b| format!("{b:02x}")).collect(),
            recorded_state: record.state,
            state: self.effective(record).state,
            last_heartbeat: record.last_seen().unwrap_or_default(),
            offline_since: record.offline_since(),
            drain: record.drain.then(|| drain::order(storage, place)).flatten(),
        })
    }
}
