//! A JSON record for each node.

use cosmwasm_std::{Api, Binary, Env, Storage, from_json, to_json_vec};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::report::{Body, Report, Tag, check_sequence, check_time};
use hpc_schema::time::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::msg::{JsonReport, NewNode};

/// What the registry keeps in a node's key, section and hot page.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Ed25519 key.
    pub agent_pubkey: Binary,
    /// Registration epoch.
    pub epoch: u64,
    /// Digest of the second section.
    pub section_digest: Binary,
    /// Last sequence.
    pub sequence: u32,
    /// UNIX seconds.
    pub last_heartbeat: u32,
    /// Always ACTIVE after the first report.
    pub state: NodeState,
    /// Health, none before the first report.
    pub status: Option<HealthStatus>,
    /// Whether jobs run.
    pub has_jobs: bool,
    /// Free cores.
    pub cores_available: u16,
    /// Free memory, GiB.
    pub memory_gb_available: u32,
    /// Free GPUs.
    pub gpus_available: u8,
    /// Free storage, GiB.
    pub storage_gb_available: u32,
    /// Mean latency, µs.
    pub avg_latency_us: u32,
    /// Measurements behind it.
    pub measurements: u8,
}

fn key(cluster: &ClusterId, node: &NodeId) -> Vec<u8> {
    [b"n", cluster.as_str().as_bytes(), b"/", node.as_str().as_bytes()].concat()
}

pub(crate) fn load(storage: &dyn Storage, cluster: &ClusterId, node: &NodeId) -> Result<Record, Error> {
    let bytes = storage.get(&key(cluster, node)).ok_or(Error::UnknownNode)?;
    Ok(from_json(bytes)?)
}

pub(crate) fn register(storage: &mut dyn Storage, cluster: &ClusterId, node: &NewNode) -> Result<(), Error> {
    let record = Record {
        agent_pubkey: node.agent_pubkey.clone(),
        epoch: node.epoch,
        section_digest: node.section_digest.clone(),
        sequence: 0,
        last_heartbeat: 0,
        state: NodeState::Pending,
        status: None,
        has_jobs: false,
        cores_available: 0,
        memory_gb_available: 0,
        gpus_available: 0,
        storage_gb_available: 0,
        avg_latency_us: 0,
        measurements: 0,
    };
    storage.set(&key(cluster, &node.node_id), &to_json_vec(&record)?);
    Ok(())
}

pub(crate) fn report(
    storage: &mut dyn Storage,
    api: &dyn Api,
    env: &Env,
    given: &JsonReport,
) -> Result<(), Error> {
    let mut record = load(storage, &given.cluster_id, &given.node_id)?;
    check_sequence(given.sequence).map_err(Error::Refused)?;
    check_time(given.timestamp, UnixSeconds(env.block.time.seconds())).map_err(Error::Refused)?;
    if given.sequence <= record.sequence {
        return Err(Error::Refused(Code::StaleSequence));
    }
    let malformed = Error::Refused(Code::Malformed);
    let report = Report {
        time: given.timestamp,
        sequence: given.sequence,
        body: Body {
            status: given.status,
            has_jobs: given.has_jobs,
            cores_available: given.cores_available,
            memory_gb_available: given.memory_gb_available,
            gpus_available: given.gpus_available,
            storage_gb_available: given.storage_gb_available,
            avg_cluster_latency_us: given.avg_latency_us,
            measurement_count: given.measurements,
        },
        section_digest: record
            .section_digest
            .as_slice()
            .try_into()
            .map_err(|_| malformed)?,
        payload_hash: given
            .payload_hash
            .as_slice()
            .try_into()
            .map_err(|_| Error::Refused(Code::Malformed))?,
    };
    let contract = env.contract.address.as_str();
    let tag = Tag::derive(
        &env.block.chain_id,
        contract,
        &given.cluster_id,
        &given.node_id,
        record.epoch,
    );
    if !api.ed25519_verify(&report.message(&tag), &given.signature, &record.agent_pubkey)? {
        return Err(Error::Refused(Code::SignatureInvalid));
    }
    record.sequence = given.sequence;
    record.last_heartbeat = given.timestamp;
    record.state = NodeState::Active;
    record.status = Some(given.status);
    record.has_jobs = given.has_jobs;
    record.cores_available = given.cores_available;
    record.memory_gb_available = given.memory_gb_available;
    record.gpus_available = given.gpus_available;
    record.storage_gb_available = given.storage_gb_available;
    record.avg_latency_us = given.avg_latency_us;
    record.measurements = given.measurements;
    storage.set(&key(&given.cluster_id, &given.node_id), &to_json_vec(&record)?);
    Ok(())
}
