//! Arbitrary messages and queries: fields from small pools, so that they meet, and now and then anything at all.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::NodeState;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::*;
use hpc_schema::time::{Rfc3339, UnixSeconds};
use proptest::prelude::*;

use crate::common::actors::key_of;
use crate::common::{CLUSTER, T0};
use crate::world::{CROWD, crowd};

pub(crate) const CLUSTERS: [&str; 3] = [CLUSTER, "second", "third.cluster"];
pub(crate) const NODES: [&str; 5] = ["node-0000", "node-0001", "node-0002", "node-0003", "node-0004"];

pub(crate) fn cluster() -> impl Strategy<Value = ClusterId> {
    prop_oneof![
        12 => prop::sample::select(&CLUSTERS[..]).prop_map(str::to_owned),
        1 => "[A-Za-z0-9][A-Za-z0-9._-]{3,63}",
    ]
    .prop_map(|id| id.parse().unwrap())
}

pub(crate) fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![
        12 => prop::sample::select(&NODES[..]).prop_map(str::to_owned),
        2 => (0..CROWD).prop_map(crowd),
        1 => "[A-Za-z0-9][A-Za-z0-9._-]{3,63}",
    ]
    .prop_map(|id| id.parse().unwrap())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ -~]{0,40}",
        1 => "\\PC{0,20}",
        1 => Just("https://gateway.example.org".to_owned()),
        1 => Just("x".repeat(300)),
    ]
}

/// An address of the cast by its number, else any text.
fn address() -> impl Strategy<Value = String> {
    prop_oneof![4 => (0u8..8).prop_map(|i| format!("@{i}")), 1 => text()]
}

fn key() -> impl Strategy<Value = AgentKey> {
    (0u8..4).prop_map(|i| {
        let public = ed25519_zebra::VerificationKey::from(&key_of(&format!("pool {i}")));
        AgentKey::from_bytes(public.into()).unwrap()
    })
}

fn time() -> impl Strategy<Value = UnixSeconds> {
    prop_oneof![any::<u64>(), T0..T0 + 40 * 86_400].prop_map(UnixSeconds)
}

fn limit() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![
        4 => Just(None),
        3 => (0u32..5).prop_map(Some),
        1 => any::<u32>().prop_map(Some),
    ]
}

fn base64(len: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), len).prop_map(|b| STANDARD.encode(b)),
        1 => text(),
    ]
}

const DURATIONS: [&str; 6] = [
    "heartbeat_interval",
    "heartbeat_timeout",
    "offline_threshold",
    "deregistration_delay",
    "retention",
    "batch_limit",
];

fn params() -> impl Strategy<Value = ParamsUpdate> {
    let coin = (
        prop_oneof![Just("stake".to_owned()), text()],
        prop_oneof![
            3 => (0u32..9).prop_map(|n| n.to_string()),
            1 => text(),
            1 => Just(u128::MAX.to_string()),
        ],
    )
        .prop_map(|(denom, amount)| serde_json::json!({"denom": denom, "amount": amount}));
    let seconds = prop_oneof![
        6 => prop::sample::select(&[10u32, 30, 60, 90, 120, 150, 200, 300, 600, 1_800, 3_600, 86_400][..]),
        1 => any::<u32>(),
    ];
    let field = prop_oneof![
        6 => (prop::sample::select(&DURATIONS[..]), seconds).prop_map(|(name, n)| (name, serde_json::json!(n))),
        1 => prop::sample::select(&["open", "admin"][..])
            .prop_map(|c| ("cluster_creation", serde_json::json!(c))),
        1 => coin.prop_map(|c| ("cluster_deposit", c)),
    ];
    prop::collection::vec(field, 0..3).prop_map(|fields| {
        let fields: serde_json::Map<_, _> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        serde_json::from_value(fields.into()).unwrap()
    })
}

fn digest() -> impl Strategy<Value = String> {
    prop_oneof![4 => (0u8..3).prop_map(|i| format!("{i:064x}")), 1 => text()]
}

fn kind() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(&["audit-head", "cleanup"][..]).prop_map(str::to_owned), 1 => text()]
}

fn job_ids() -> impl Strategy<Value = JobIds> {
    prop::sample::select(&[JobIds::Plain, JobIds::Hashed, JobIds::None][..])
}

/// Batch bytes: noise, and noise behind a good head.
pub(crate) fn batch_bytes() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(any::<u8>(), 0..400), any::<bool>(), 0u8..4).prop_map(|(mut bytes, head, page)| {
        if head {
            let mut all = vec![1];
            all.extend((T0 as u32).to_be_bytes());
            all.extend([0, page, 3]);
            all.append(&mut bytes);
            return all;
        }
        bytes
    })
}

fn identity() -> impl Strategy<Value = NodeIdentity> {
    (
        (node(), cluster(), address(), key()),
        (prop::option::of(text()), prop::option::of(digest()), base64(32)),
        time(),
    )
        .prop_map(
            |((node_id, cluster_id, provider_address, agent_pubkey), (hostname, fingerprint, nonce), at)| {
                NodeIdentity {
                    node_id,
                    cluster_id,
                    provider_address,
                    agent_pubkey,
                    hostname,
                    hardware_fingerprint: fingerprint,
                    registration_nonce: nonce,
                    registration_timestamp: Rfc3339::from_unix(at.0, 0)
                        .unwrap_or_else(|_| Rfc3339::from_unix(T0, 0).unwrap()),
                }
            },
        )
}

/// Every message of the contract; registrations and reports here carry no good signature (see `step.rs` for those).
pub(crate) fn execute() -> impl Strategy<Value = ExecuteMsg> {
    let named = || (prop::option::weighted(0.7, cluster()), node());
    prop_oneof![
        2 => params().prop_map(|params| ExecuteMsg::UpdateParams { params }),
        1 => prop::option::of(address()).prop_map(|admin| ExecuteMsg::ProposeAdmin { admin }),
        1 => Just(ExecuteMsg::AcceptAdmin {}),
        1 => prop::bool::weighted(0.2).prop_map(|paused| ExecuteMsg::PauseRegistrations { paused }),
        2 => (
            (cluster(), prop::option::of(text()), prop::option::of(text()), prop::option::of(text())),
            prop::collection::vec(address(), 0..3), prop::option::of(key()), job_ids()
        ).prop_map(|((cluster_id, name, region, gateway_endpoint), operators, task_public_key, job_ids)| {
            ExecuteMsg::CreateCluster {
                cluster_id, name, region, gateway_endpoint, operators, task_public_key, job_ids,
            }
        }),
        2 => (
            (cluster(), prop::option::of(text()), prop::option::of(text()), prop::option::of(text())),
            prop::option::of(prop::collection::vec(address(), 0..20)), prop::option::of(job_ids())
        ).prop_map(|((cluster_id, name, region, gateway_endpoint), operators, job_ids)| {
            ExecuteMsg::UpdateCluster { cluster_id, name, region, gateway_endpoint, operators, job_ids }
        }),
        1 => (cluster(), key(), prop::option::of(base64(64))).prop_map(
            |(cluster_id, task_public_key, rotation_signature)| ExecuteMsg::SetTaskKey {
                cluster_id, task_public_key, rotation_signature,
            }
        ),
        3 => cluster().prop_map(|cluster_id| ExecuteMsg::ActivateCluster { cluster_id }),
        2 => cluster().prop_map(|cluster_id| ExecuteMsg::DeactivateCluster { cluster_id }),
        3 => cluster().prop_map(|cluster_id| ExecuteMsg::CloseCluster { cluster_id }),
        1 => (cluster(), prop::option::of(address()))
            .prop_map(|(cluster_id, owner)| ExecuteMsg::ProposeClusterOwner { cluster_id, owner }),
        1 => cluster().prop_map(|cluster_id| ExecuteMsg::AcceptClusterOwner { cluster_id }),
        1 => (identity(), base64(64), base64(33), prop::option::of(base64(64))).prop_map(
            |(node_identity, provider_signature, provider_pubkey, rotation_signature)| {
                ExecuteMsg::RegisterNode {
                    node_identity, provider_signature, provider_pubkey, rotation_signature,
                }
            }
        ),
        5 => named().prop_map(|(cluster_id, node_id)| ExecuteMsg::DeregisterNode { cluster_id, node_id }),
        3 => (named(), prop::option::of(text()), prop::option::of(time())).prop_map(
            |((cluster_id, node_id), reason, until)| ExecuteMsg::DrainNode {
                cluster_id, node_id, reason, until,
            }
        ),
        2 => named().prop_map(|(cluster_id, node_id)| ExecuteMsg::ResumeNode { cluster_id, node_id }),
        2 => prop::collection::vec((cluster(), batch_bytes().prop_map(|b| STANDARD.encode(b))), 0..3).prop_map(
            |groups| ExecuteMsg::SubmitReports {
                groups: groups
                    .into_iter()
                    .map(|(cluster_id, reports)| ReportGroup { cluster_id, reports })
                    .collect(),
            }
        ),
        4 => (prop::option::of(cluster()), limit())
            .prop_map(|(cluster_id, limit)| ExecuteMsg::Sweep { cluster_id, limit }),
        5 => limit().prop_map(|limit| ExecuteMsg::Prune { limit }),
        2 => (cluster(), kind(), digest())
            .prop_map(|(cluster_id, kind, digest)| ExecuteMsg::Anchor { cluster_id, kind, digest }),
    ]
}

fn cursor() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        3 => Just(None),
        2 => (0u32..4, 0u16..3, 0u8..70).prop_map(|(c, p, s)| Some(format!("{c}.{p}.{s}"))),
        1 => any::<(u32, u16, u8)>().prop_map(|(c, p, s)| Some(format!("{c}.{p}.{s}"))),
        1 => any::<u64>().prop_map(|n| Some(n.to_string())),
        1 => text().prop_map(Some),
    ]
}

fn filter() -> impl Strategy<Value = NodeFilter> {
    let n = || prop::option::of(prop_oneof![0u32..40, any::<u32>()]);
    (
        (prop::option::of(cluster()), prop::option::of(address())),
        (
            prop::option::of(prop::sample::select(&NodeState::ALL[..])),
            prop::option::of(any::<bool>()),
        ),
        (n(), n(), n()),
        prop::option::of(text()),
    )
        .prop_map(
            |(
                (cluster_id, provider),
                (state, schedulable),
                (min_cores, min_memory_gb, min_gpus),
                gpu_type,
            )| {
                NodeFilter {
                    cluster_id,
                    provider,
                    state,
                    schedulable,
                    min_cores,
                    min_memory_gb,
                    min_gpus,
                    gpu_type,
                }
            },
        )
}

/// Every question.
pub(crate) fn query() -> impl Strategy<Value = QueryMsg> {
    let ids = || prop::collection::vec(node(), 0..8);
    prop_oneof![
        Just(QueryMsg::Config {}),
        Just(QueryMsg::Params {}),
        cluster().prop_map(|cluster_id| QueryMsg::Cluster { cluster_id }),
        (prop::option::of(address()), cursor(), limit()).prop_map(|(owner, start_after, limit)| {
            QueryMsg::Clusters {
                owner,
                start_after,
                limit,
            }
        }),
        cluster().prop_map(|cluster_id| QueryMsg::Aggregate { cluster_id }),
        (prop::option::of(cluster()), node())
            .prop_map(|(cluster_id, node_id)| QueryMsg::Node { cluster_id, node_id }),
        (filter(), cursor(), limit()).prop_map(|(filter, start_after, limit)| QueryMsg::Nodes {
            filter,
            start_after,
            limit
        }),
        (cluster(), ids()).prop_map(|(cluster_id, node_ids)| QueryMsg::NodesByIds { cluster_id, node_ids }),
        (cluster(), ids()).prop_map(|(cluster_id, node_ids)| QueryMsg::Relay { cluster_id, node_ids }),
        (cluster(), cursor(), limit()).prop_map(|(cluster_id, start_after, limit)| {
            QueryMsg::JobsAtRisk {
                cluster_id,
                start_after,
                limit,
            }
        }),
        (cluster(), prop_oneof![0u16..3, any::<u16>()])
            .prop_map(|(cluster_id, page)| QueryMsg::RawPage { cluster_id, page }),
        (cluster(), prop::option::of(kind()), cursor(), limit()).prop_map(
            |(cluster_id, kind, start_after, limit)| QueryMsg::Anchors {
                cluster_id,
                kind,
                start_after,
                limit
            }
        ),
        (cluster(), kind(), digest()).prop_map(|(cluster_id, kind, digest)| QueryMsg::Anchor {
            cluster_id,
            kind,
            digest
        }),
    ]
}

/// The names of an enum's variants: serde tells them when it meets one that is none.
pub(crate) fn variants<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let error = serde_json::from_value::<T>(serde_json::json!({"no_such_variant": {}}))
        .unwrap_err()
        .to_string();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
