use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, ZebraVerifier};
use crate::refusal::RefusalKind;
use crate::time::{Rfc3339, UnixSeconds};

const NOW: u64 = 1_769_781_900;

struct Site {
    cluster: ClusterId,
    node: NodeId,
    signing: SigningKey,
}

impl Site {
    fn new() -> Self {
        Self {
            cluster: "hpc-cluster-1".parse().unwrap(),
            node: "node-1".parse().unwrap(),
            signing: SigningKey::from([3; 32]),
        }
    }

    fn key(&self) -> AgentKey {
        AgentKey::from_bytes(VerificationKey::from(&self.signing).into()).unwrap()
    }

    fn scope(&self) -> TaskScope<'_> {
        TaskScope {
            chain_id: "hpc-1",
            contract: "wasm1abc",
            cluster_id: &self.cluster,
            node_id: &self.node,
        }
    }

    fn task(&self, kind: &str, params: &str) -> Task {
        let mut task = Task {
            task_id: "task-1".parse().unwrap(),
            task_type: kind.to_owned(),
            params: RawValue::from_string(params.to_owned()).unwrap(),
            issued_at: Rfc3339::from_unix(NOW, 0).unwrap(),
            expires_at: Rfc3339::from_unix(NOW + 600, 0).unwrap(),
            nonce: STANDARD.encode([7; 16]),
            signature: String::new(),
        };
        self.sign(&mut task);
        task
    }

    fn sign(&self, task: &mut Task) {
        let nonce = crate::bytes::base64_exact::<16>(&task.nonce).unwrap_or_default();
        let message = task_message(&self.scope(), task, &nonce);
        task.signature = STANDARD.encode(<[u8; 64]>::from(self.signing.sign(&message)));
    }

    fn verify(&self, task: &Task, now: u64) -> Result<(TaskType, TaskHash), Code> {
        verify_task(task, &self.scope(), &self.key(), UnixSeconds(now), &ZebraVerifier).map_err(|r| r.code)
    }
}

#[test]
fn a_signed_task_is_good_until_its_expiry_and_for_its_node_alone() {
    let site = Site::new();
    let task = site.task("diag.health_probe", "{}");
    let (kind, hash) = site.verify(&task, NOW).unwrap();
    assert_eq!(kind, TaskType::DiagHealthProbe);
    assert_eq!(site.verify(&task, NOW + 600).unwrap().1, hash);
    assert_eq!(site.verify(&task, NOW + 601), Err(Code::TaskExpired));
    assert_eq!(site.verify(&task, NOW - 61), Err(Code::TimestampInFuture));
    let other = Site {
        node: "node-2".parse().unwrap(),
        ..Site::new()
    };
    assert_eq!(other.verify(&task, NOW), Err(Code::TaskSignatureInvalid));
    let mut long = site.task("diag.health_probe", "{}");
    long.expires_at = Rfc3339::from_unix(NOW + 8 * 24 * 3600, 0).unwrap();
    site.sign(&mut long);
    assert_eq!(site.verify(&long, NOW), Err(Code::TaskExpired));
}

#[test]
fn every_signed_part_is_bound() {
    let site = Site::new();
    let task = site.task("diag.health_probe", r#"{"checks":["gpu"]}"#);
    let raw = |s: &str| RawValue::from_string(s.to_owned()).unwrap();
    let later = Rfc3339::from_unix(NOW + 601, 0).unwrap();
    for changed in [
        Task {
            task_id: "task-2".parse().unwrap(),
            ..task.clone()
        },
        Task {
            task_type: "slice.topology_discover".into(),
            ..task.clone()
        },
        Task {
            params: raw(r#"{"checks": ["gpu"]}"#),
            ..task.clone()
        },
        Task {
            issued_at: Rfc3339::from_unix(NOW - 1, 0).unwrap(),
            ..task.clone()
        },
        Task {
            expires_at: later,
            ..task.clone()
        },
        Task {
            nonce: STANDARD.encode([8; 16]),
            ..task.clone()
        },
        Task {
            signature: STANDARD.encode([0; 64]),
            ..task.clone()
        },
    ] {
        assert_eq!(
            site.verify(&changed, NOW),
            Err(Code::TaskSignatureInvalid),
            "{changed:?}"
        );
    }
    for scope in [
        TaskScope {
            chain_id: "hpc-2",
            ..site.scope()
        },
        TaskScope {
            contract: "wasm1abd",
            ..site.scope()
        },
        TaskScope {
            cluster_id: &"hpc-cluster-2".parse().unwrap(),
            ..site.scope()
        },
    ] {
        let r = verify_task(&task, &scope, &site.key(), UnixSeconds(NOW), &ZebraVerifier);
        assert_eq!(r.unwrap_err().code, Code::TaskSignatureInvalid);
    }
}

#[test]
fn forms_that_cannot_be_and_types_of_tomorrow_have_their_codes() {
    let site = Site::new();
    let good = site.task("diag.health_probe", "{}");
    for bad in [
        Task {
            nonce: "AAAA".into(),
            ..good.clone()
        },
        Task {
            signature: "x".into(),
            ..good.clone()
        },
        site.task("diag.health_probe", "[]"),
    ] {
        assert_eq!(site.verify(&bad, NOW), Err(Code::Malformed));
    }
    let big = format!(r#"{{"checks":"{}"}}"#, "x".repeat(MAX_TASK_PARAMS_BYTES));
    assert_eq!(
        site.verify(&site.task("diag.health_probe", &big), NOW),
        Err(Code::BodyTooLarge)
    );
    assert_eq!(
        site.verify(&site.task("exec.shell", "{}"), NOW),
        Err(Code::UnknownType)
    );
}

#[test]
fn a_result_is_of_its_task_and_by_its_node() {
    let (site, agent) = (Site::new(), SigningKey::from([9; 32]));
    let (_, hash) = site.verify(&site.task("diag.health_probe", "{}"), NOW).unwrap();
    let at = Rfc3339::from_unix(NOW, 0).unwrap();
    let mut result = TaskResult {
        task_hash: hash.to_hex(),
        outcome: TaskOutcome::Completed,
        code: None,
        detail: None,
        result: RawValue::from_string("{}".to_owned()).unwrap(),
        started_at: at.clone(),
        finished_at: at,
        signature: String::new(),
    };
    let signed = agent.sign(&result_message(hash, &result));
    result.signature = STANDARD.encode(<[u8; 64]>::from(signed));
    let key = AgentKey::from_bytes(VerificationKey::from(&agent).into()).unwrap();
    let check = |r: &TaskResult, h| verify_result(r, h, &key, &ZebraVerifier).map_err(|r| r.code);
    assert_eq!(check(&result, hash), Ok(()));
    assert_eq!(check(&result, TaskHash([1; 32])), Err(Code::TaskMismatch));
    let forged = TaskResult {
        outcome: TaskOutcome::Failed,
        ..result.clone()
    };
    assert_eq!(check(&forged, hash), Err(Code::SignatureInvalid));
    let forged = TaskResult {
        result: RawValue::from_string("{\"a\":1}".to_owned()).unwrap(),
        ..result.clone()
    };
    assert_eq!(check(&forged, hash), Err(Code::SignatureInvalid));
    let odd = TaskResult {
        code: Some("task_failed".into()),
        ..result.clone()
    };
    assert_eq!(check(&odd, hash), Err(Code::Malformed));
    let odd = TaskResult {
        code: Some("no_such".into()),
        outcome: TaskOutcome::Failed,
        ..result.clone()
    };
    assert_eq!(check(&odd, hash), Err(Code::Malformed));
    for signature in ["", "*", "AAAA", result.signature.trim_end_matches('=')] {
        let odd = TaskResult {
            signature: signature.to_owned(),
            ..result.clone()
        };
        let refusal = verify_result(&odd, hash, &key, &ZebraVerifier).unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("signature"));
        assert_eq!(
            (refusal.code, refusal.kind),
            (Code::Malformed, RefusalKind::Malformed)
        );
    }
}

#[test]
fn a_completed_task_s_result_is_by_its_type_s_schema_and_may_say_more() {
    let check = |kind: TaskType, text: &str| {
        check_output(kind, &RawValue::from_string(text.to_owned()).unwrap())
            .map_err(|r| (r.code, r.field, r.kind))
    };
    let refused = Err((
        Code::InvalidField,
        Some("result".to_owned()),
        RefusalKind::Malformed,
    ));
    for kind in TaskType::ALL.iter().copied() {
        assert_eq!(check(kind, r#"{"x":"not the schema"}"#), refused, "{kind}");
    }
    let probed = HealthProbed {
        status: CheckStatus::Pass,
        checks: Vec::new(),
        kernel_version: None,
        memory_available_mib: None,
        kvm_present: true,
        vfio_loaded: false,
        gpus: Vec::new(),
        fabric_links: Vec::new(),
    };
    let text = serde_json::to_string(&probed).unwrap();
    assert_eq!(check(TaskType::DiagHealthProbe, &text), Ok(()));
    let more = text.replacen('{', r#"{"of_tomorrow":[],"#, 1);
    assert_eq!(check(TaskType::DiagHealthProbe, &more), Ok(()));
    assert_eq!(check(TaskType::VmLaunch, &text), refused);
    let wrong = text.replace("true", "1");
    assert_eq!(check(TaskType::DiagHealthProbe, &wrong), refused);
}

#[test]
fn a_rotation_is_followed_from_the_pinned_key_on_and_only_if_the_old_key_signed_it() {
    let keys: Vec<SigningKey> = (1..=3u8).map(|b| SigningKey::from([b; 32])).collect();
    let public = |k: &SigningKey| AgentKey::from_bytes(VerificationKey::from(k).into()).unwrap();
    let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
    let step = |old: &SigningKey, new: &SigningKey, by: &SigningKey| {
        let message = rotation_message("c", "w", &cluster, &public(old), &public(new));
        KeyRotation {
            old_key: public(old),
            new_key: public(new),
            signature: STANDARD.encode(<[u8; 64]>::from(by.sign(&message))),
        }
    };
    let steps = [
        step(&keys[0], &keys[1], &keys[0]),
        step(&keys[1], &keys[2], &keys[1]),
    ];
    let follow = |pinned: &SigningKey, steps: &[KeyRotation]| {
        verify_rotation(&public(pinned), steps, ("c", "w", &cluster), &ZebraVerifier)
    };
    assert_eq!(follow(&keys[0], &steps).unwrap(), public(&keys[2]));
    assert_eq!(follow(&keys[1], &steps).unwrap(), public(&keys[2]));
    assert_eq!(follow(&keys[2], &steps).unwrap(), public(&keys[2]));
    let forged = [step(&keys[0], &keys[2], &keys[2])];
    assert_eq!(
        follow(&keys[0], &forged).unwrap_err().code,
        Code::TaskSignatureInvalid
    );
}

#[test]
fn states_lead_from_the_queue_to_one_end() {
    for from in TaskState::ALL {
        for to in TaskState::ALL {
            assert!(!(from.is_end() && from.may_become(to)), "{from} {to}");
        }
        assert_eq!(from.as_str().parse(), Ok(from));
        assert_eq!(serde_json::to_value(from).unwrap(), from.as_str());
    }
    assert!(TaskState::Queued.may_become(TaskState::Dispatched));
    assert!(!TaskState::Queued.may_become(TaskState::Completed));
    assert!(TaskState::Running.may_become(TaskState::Completed));
}

#[test]
fn the_catalogue_has_every_type_and_its_schemas_refuse_unknown_members() {
    let all = catalogue();
    assert_eq!(all.len(), TaskType::ALL.len());
    for entry in all {
        assert_eq!(serde_json::to_value(entry.kind).unwrap(), entry.kind.as_str());
        assert_eq!(entry.params["additionalProperties"], false, "{}", entry.kind);
        assert!(entry.result["properties"].is_object(), "{}", entry.kind);
    }
}

fn parse(kind: TaskType, text: &str) -> Result<Params, String> {
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    Params::parse(kind, &raw).map_err(|r| r.message)
}

#[test]
fn parameters_are_read_whole_or_refused_by_name() {
    let sha = "a".repeat(64);
    let launch = format!(
        r#"{{"vm_id":"vm-1","image_path":"/var/lib/libvirt/images/a.img","image_sha256":"{sha}","vcpu_count":2,"memory_mib":512,"lease_seconds":600}}"#
    );
    let Ok(Params::VmLaunch(p)) = parse(TaskType::VmLaunch, &launch) else {
        panic!()
    };
    assert_eq!((p.accel, p.network), (Accel::Auto, VmNetwork::None));
    for (from, to, named) in [
        (r#""vcpu_count":2"#, r#""vcpu_count":0"#, "vcpu_count"),
        (r#""vcpu_count":2"#, r#""vcpu_count":2.5"#, "u32"),
        (r#""lease_seconds":600"#, r#""lease_seconds":59"#, "lease_seconds"),
        (r#""vm_id":"vm-1""#, r#""vm_id":"../vm""#, "alphanumeric"),
        (
            r#""vm_id":"vm-1""#,
            r#""vm_id":"vm-1","vm_id":"vm-2""#,
            "duplicate field",
        ),
        (r#""vm_id":"vm-1""#, r#""vm_id":"vm-1","shell":"id""#, "shell"),
        ("/images/a.img", "/images/../../etc/shadow", "absolute path"),
        (&sha, "A", "SHA-256"),
    ] {
        let e = parse(TaskType::VmLaunch, &launch.replace(from, to)).unwrap_err();
        assert!(e.contains(named), "{to}: {e}");
    }
    assert!(parse(TaskType::DiagHealthProbe, r#"{"checks":[]}"#).is_err());
    assert!(parse(TaskType::DiagHealthProbe, r#"{"checks":["gpu","gpu"]}"#).is_err());
    assert!(parse(TaskType::DiagHealthProbe, r#"{"checks":["gpu"]}"#).is_ok());
    assert!(
        parse(
            TaskType::AllocationDeprovisionUser,
            r#"{"allocation_id":"a","username":"root;id"}"#
        )
        .is_err()
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_of_tasks_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        drop(serde_json::from_slice::<Task>(&bytes));
        drop(serde_json::from_slice::<WaitAnswer>(&bytes));
        drop(serde_json::from_slice::<TaskResult>(&bytes));
    }

    #[test]
    fn no_json_makes_parameters_panic_and_what_is_read_is_written_and_read_the_same(
        kind in proptest::sample::select(TaskType::ALL),
        members in proptest::collection::btree_map("[a-z_]{1,16}", "[ -~]{0,24}", 0..8),
    ) {
        let text = serde_json::to_string(&members).unwrap();
        drop(parse(kind, &text));
    }
}
