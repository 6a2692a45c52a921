//! What makes the comparison fair: both layouts take a good report, and neither an altered one.

use base64::Engine as _;
use cosmwasm_std::testing::{message_info, mock_dependencies, mock_env};
use cosmwasm_std::{Addr, Binary, from_json};
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use hpc_schema::node::HealthStatus;
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Tag};

use super::*;
use crate::msg::{JsonReport, NewNode};

const CLUSTER: &str = "hpc-cluster-1";
const NODE: &str = "node-hpc1-compute-042";

/// Outcomes of a good report, of the same again, and of one whose cores were altered after it was signed; then the
/// last sequence on record.
fn outcomes(layout: Layout) -> (bool, bool, bool, u32) {
    let (mut deps, env) = (mock_dependencies(), mock_env());
    let info = message_info(&Addr::unchecked("anyone"), &[]);
    instantiate(
        deps.as_mut(),
        env.clone(),
        info.clone(),
        InstantiateMsg { layout },
    )
    .unwrap();
    let key = SigningKey::from([3; 32]);
    let (cluster_id, node_id) = (CLUSTER.parse().unwrap(), NODE.parse().unwrap());
    let public: [u8; 32] = VerificationKeyBytes::from(&key).into();
    let node = NewNode {
        node_id,
        agent_pubkey: public.into(),
        epoch: 1,
        page: 0,
        slot: 5,
        section_digest: [0; 16].into(),
    };
    let register = ExecuteMsg::Register {
        cluster_id,
        nodes: vec![node],
    };
    execute(deps.as_mut(), env.clone(), info.clone(), register).unwrap();
    let tag = Tag::derive(
        &env.block.chain_id,
        env.contract.address.as_str(),
        &CLUSTER.parse().unwrap(),
        &NODE.parse().unwrap(),
        1,
    );
    let mut send = |sequence: u32, altered: bool| {
        let mut report = Report {
            time: u32::try_from(env.block.time.seconds()).unwrap(),
            sequence,
            body: Body::saturating(HealthStatus::Healthy, &Figures::default()),
            section_digest: [0; 16],
            payload_hash: [8; 32],
        };
        let signature: [u8; 64] = key.sign(&report.message(&tag)).into();
        if altered {
            report.body.cores_available = 64;
        }
        let message = match layout {
            Layout::Json => ExecuteMsg::ReportJson {
                reports: vec![as_json(&report, &signature)],
            },
            Layout::Binary => ExecuteMsg::ReportBinary {
                reports: as_batch(&report, &signature),
            },
        };
        execute(deps.as_mut(), env.clone(), info.clone(), message).is_ok()
    };
    let outcomes = (send(1, false), send(1, false), send(2, true));
    let question = match layout {
        Layout::Json => QueryMsg::Json {
            cluster_id: CLUSTER.parse().unwrap(),
            node_id: NODE.parse().unwrap(),
        },
        Layout::Binary => QueryMsg::Binary { page: 0, slot: 5 },
    };
    let sequence: u32 = from_json(query(deps.as_ref(), env, question).unwrap()).unwrap();
    (outcomes.0, outcomes.1, outcomes.2, sequence)
}

fn as_json(report: &Report, signature: &[u8; 64]) -> JsonReport {
    JsonReport {
        cluster_id: CLUSTER.parse().unwrap(),
        node_id: NODE.parse().unwrap(),
        sequence: report.sequence,
        timestamp: report.time,
        status: report.body.status,
        has_jobs: report.body.has_jobs,
        cores_available: report.body.cores_available,
        memory_gb_available: report.body.memory_gb_available,
        gpus_available: report.body.gpus_available,
        storage_gb_available: report.body.storage_gb_available,
        avg_latency_us: report.body.avg_cluster_latency_us,
        measurements: report.body.measurement_count,
        payload_hash: (&report.payload_hash).into(),
        signature: signature.into(),
    }
}

fn as_batch(report: &Report, signature: &[u8; 64]) -> Binary {
    let outgoing = Outgoing {
        page: 0,
        slot: 5,
        report,
        signature,
        section: None,
    };
    let bytes = encode(&[outgoing]).unwrap();
    // As it stands in a message.
    Binary::from_base64(&base64::engine::general_purpose::STANDARD.encode(bytes)).unwrap()
}

#[test]
fn both_layouts_take_a_signed_report_once_and_an_altered_one_never() {
    for layout in [Layout::Json, Layout::Binary] {
        assert_eq!(outcomes(layout), (true, false, false, 1), "{layout:?}");
    }
}
