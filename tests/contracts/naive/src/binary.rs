//! Two binary records for each node: key, tag and section digest, written once; the registry's hot record, written
//! with each report.

use cosmwasm_std::{Api, Env, Storage};
use hpc_schema::code::Code;
use hpc_schema::node::{HOT_LEN, HotRecord, NodeState};
use hpc_schema::report::batch::{Item, decode};
use hpc_schema::report::{Body, Report, Tag, check_sequence, check_time};
use hpc_schema::time::UnixSeconds;

use crate::Error;
use crate::msg::NewNode;

const FIXED: u8 = 1;
const HOT: u8 = 2;

/// Prefix ‖ page u16 ‖ slot u8: shorter than any id.
fn key(prefix: u8, page: u16, slot: u8) -> [u8; 4] {
    let [high, low] = page.to_be_bytes();
    [prefix, high, low, slot]
}

pub(crate) fn load(storage: &dyn Storage, page: u16, slot: u8) -> Result<HotRecord, Error> {
    let bytes = storage.get(&key(HOT, page, slot)).ok_or(Error::UnknownNode)?;
    let bytes: [u8; HOT_LEN] = bytes.try_into().map_err(|_| Error::Refused(Code::Malformed))?;
    HotRecord::decode(&bytes).ok_or(Error::UnknownNode)
}

pub(crate) fn register(storage: &mut dyn Storage, node: &NewNode, tag: &Tag) {
    let fixed = [
        node.agent_pubkey.as_slice(),
        tag.as_bytes(),
        node.section_digest.as_slice(),
    ]
    .concat();
    storage.set(&key(FIXED, node.page, node.slot), &fixed);
    storage.set(&key(HOT, node.page, node.slot), &HotRecord::pending().encode());
}

struct Signed {
    message: Vec<u8>,
    signature: [u8; 64],
    agent_pubkey: [u8; 32],
}

pub(crate) fn report(storage: &mut dyn Storage, api: &dyn Api, env: &Env, batch: &[u8]) -> Result<(), Error> {
    let now = UnixSeconds(env.block.time.seconds());
    let (mut signed, mut records) = (Vec::new(), Vec::new());
    for item in decode(batch).map_err(Error::Refused)? {
        let item = item.map_err(Error::Refused)?;
        let before = load(storage, item.page, item.slot)?;
        let (report, proof) = read(storage, &item, &before, now)?;
        signed.push(proof);
        records.push((key(HOT, item.page, item.slot), after(before, &report)));
    }
    let messages: Vec<&[u8]> = signed.iter().map(|s| s.message.as_slice()).collect();
    let signatures: Vec<&[u8]> = signed.iter().map(|s| s.signature.as_slice()).collect();
    let keys: Vec<&[u8]> = signed.iter().map(|s| s.agent_pubkey.as_slice()).collect();
    if !api.ed25519_batch_verify(&messages, &signatures, &keys)? {
        return Err(Error::Refused(Code::SignatureInvalid));
    }
    for (key, record) in records {
        storage.set(&key, &record.encode());
    }
    Ok(())
}

fn read(
    storage: &dyn Storage,
    item: &Item<'_>,
    before: &HotRecord,
    now: UnixSeconds,
) -> Result<(Report, Signed), Error> {
    check_sequence(item.sequence).map_err(Error::Refused)?;
    check_time(item.time, now).map_err(Error::Refused)?;
    if item.sequence <= before.sequence {
        return Err(Error::Refused(Code::StaleSequence));
    }
    let fixed = storage
        .get(&key(FIXED, item.page, item.slot))
        .ok_or(Error::UnknownNode)?;
    let split = || {
        let (agent_pubkey, rest) = fixed.split_first_chunk::<32>()?;
        let (tag, digest) = rest.split_first_chunk::<16>()?;
        Some((*agent_pubkey, Tag::from_bytes(*tag), digest.try_into().ok()?))
    };
    let (agent_pubkey, tag, section_digest) = split().ok_or(Error::Refused(Code::Malformed))?;
    let report = Report {
        time: item.time,
        sequence: item.sequence,
        body: Body::decode(&item.body).map_err(Error::Refused)?,
        section_digest,
        payload_hash: *item.payload_hash,
    };
    let proof = Signed {
        message: report.message(&tag).to_vec(),
        signature: *item.signature,
        agent_pubkey,
    };
    Ok((report, proof))
}

fn after(before: HotRecord, report: &Report) -> HotRecord {
    HotRecord {
        sequence: report.sequence,
        last_heartbeat: report.time,
        state: NodeState::Active,
        status: Some(report.body.status),
        has_jobs: report.body.has_jobs,
        cores: report.body.cores_available,
        memory_gb: report.body.memory_gb_available,
        gpus: report.body.gpus_available,
        storage_gb: report.body.storage_gb_available,
        latency_us: report.body.avg_cluster_latency_us,
        measurements: report.body.measurement_count,
        ..before
    }
}
