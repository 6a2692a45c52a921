use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{CHAIN_ID, CONTRACT, Case, NOW, Signer, VectorError, result_of_code};
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, ZebraVerifier};
use crate::node::HealthStatus;
use crate::report::{Body, Figures, Measurement, Report, Section, Tag, section_digest};
use crate::time::UnixSeconds;

const EPOCH: u64 = 7;

fn section() -> Result<Section, VectorError> {
    Ok(Section {
        cores_total: 64,
        memory_gb_total: 256,
        gpus_total: 4,
        storage_gb_total: 2000,
        agent_version: "0.9.1".into(),
        gpu_type: "NVIDIA A100 80GB".into(),
        jobs: vec!["slurm-12345".into(), "slurm-12346".into()],
        jobs_total: 2,
        measurements: vec![Measurement {
            target: "node-hpc1-compute-041".parse().map_err(VectorError::input)?,
            latency_us: 45,
            packet_loss_percent: 0,
            measured_at: 1_769_781_895,
        }],
    })
}

fn report(section: &[u8]) -> Report {
    let figures = Figures {
        running_count: 2,
        cores_available: 32,
        memory_gb_available: 128,
        gpus_available: 2,
        storage_gb_available: 1500,
        avg_cluster_latency_us: 44,
        measurement_count: 2,
    };
    Report {
        time: 1_769_781_900,
        sequence: 145_823,
        body: Body::saturating(HealthStatus::Healthy, &figures),
        section_digest: section_digest(section),
        payload_hash: [0xab; 32],
    }
}

/// A judge's answer: bytes, then the checks that need no record.
fn judge(bytes: &[u8], tag: &Tag, key: &AgentKey, signature: &[u8], now: u64) -> Result<(), Code> {
    Report::decode(bytes)?.check(&ZebraVerifier, tag, key, signature, UnixSeconds(now))
}

pub(super) fn generate() -> Result<Value, VectorError> {
    let (agent, other) = (Signer::from_seed(1)?, Signer::from_seed(4)?);
    let cluster: ClusterId = "hpc-cluster-1".parse().map_err(VectorError::input)?;
    let node: NodeId = "node-hpc1-compute-042".parse().map_err(VectorError::input)?;
    let tag = Tag::derive(CHAIN_ID, CONTRACT, &cluster, &node, EPOCH);
    let foreign = Tag::derive("hpc-local-2", CONTRACT, &cluster, &node, EPOCH);
    let section = section()?.encode();
    let good = report(&section);
    let huge = Figures {
        running_count: u64::MAX,
        cores_available: u64::MAX,
        memory_gb_available: u64::MAX,
        gpus_available: u64::MAX,
        storage_gb_available: u64::MAX,
        avg_cluster_latency_us: u64::MAX,
        measurement_count: u64::MAX,
    };
    let saturated = Report {
        body: Body::saturating(HealthStatus::Draining, &huge),
        ..good
    };
    let zero = Report { sequence: 0, ..good };
    let flagged = |flags: u8| {
        let mut bytes = good.encode();
        if let Some(b) = bytes.get_mut(8) {
            *b = flags;
        }
        bytes
    };
    let sign = |r: &Report| agent.sign(&r.message(&tag));
    let rows: Vec<(&str, Vec<u8>, [u8; 64], u64)> = vec![
        ("healthy", good.encode().into(), sign(&good), NOW),
        (
            "saturated, draining",
            saturated.encode().into(),
            sign(&saturated),
            NOW,
        ),
        ("300 s old", good.encode().into(), sign(&good), NOW + 300),
        ("301 s old", good.encode().into(), sign(&good), NOW + 301),
        ("60 s ahead", good.encode().into(), sign(&good), NOW - 60),
        ("61 s ahead", good.encode().into(), sign(&good), NOW - 61),
        ("sequence 0", zero.encode().into(), sign(&zero), NOW),
        (
            "another key",
            good.encode().into(),
            other.sign(&good.message(&tag)),
            NOW,
        ),
        (
            "signed for another chain",
            good.encode().into(),
            agent.sign(&good.message(&foreign)),
            NOW,
        ),
        (
            "signed without the tag",
            good.encode().into(),
            agent.sign(&good.encode()),
            NOW,
        ),
        ("status 0", flagged(0).into(), sign(&good), NOW),
        ("status 6", flagged(6).into(), sign(&good), NOW),
        ("section bit set", flagged(0x19).into(), sign(&good), NOW),
        (
            "69 bytes",
            good.encode().get(..69).unwrap_or_default().to_vec(),
            sign(&good),
            NOW,
        ),
    ];
    let mut cases = Vec::new();
    for (name, bytes, signature, now) in rows {
        let result = judge(&bytes, &tag, &agent.public, &signature, now);
        cases.push(json!({
            "name": name, "report": hex::encode(&bytes), "signature": STANDARD.encode(signature),
            "now": now, "result": result_of_code(&result),
        }));
    }
    Ok(json!({
        "description": "Reports (hex), signed over tag and report; the section is that of the first case.",
        "context": {
            "agent": agent.json(), "public_key": agent.public.to_base64(),
            "chain_id": CHAIN_ID, "contract": CONTRACT, "cluster_id": cluster, "node_id": node, "epoch": EPOCH,
            "tag": hex::encode(tag.as_bytes()),
            "section": hex::encode(&section), "section_digest": hex::encode(section_digest(&section)),
        },
        "cases": cases,
    }))
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let tag = Tag::derive(
        context.text("chain_id")?,
        context.text("contract")?,
        &context.parsed("cluster_id")?,
        &context.parsed("node_id")?,
        context.number("epoch")?,
    );
    context.same("tag", &json!(hex::encode(tag.as_bytes())))?;
    let section = context.bytes("section")?;
    let decoded = Section::decode(&section).map_err(VectorError::input)?;
    context.same("section", &json!(hex::encode(decoded.encode())))?;
    context.same("section_digest", &json!(hex::encode(section_digest(&section))))?;
    let signature = STANDARD
        .decode(case.text("signature")?)
        .map_err(|_| case.missing("signature"))?;
    let key: AgentKey = context.parsed("public_key")?;
    let result = judge(
        &case.bytes("report")?,
        &tag,
        &key,
        &signature,
        case.number("now")?,
    );
    case.same("result", &result_of_code(&result))
}
