use std::convert::Infallible;

use ed25519_zebra::{SigningKey, VerificationKey};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::heartbeat::parse::tests::{any_heartbeat, healthy};
use crate::heartbeat::{MAX_HEARTBEAT_BYTES, SignHeartbeat, sign_heartbeat};
use crate::key::ZebraVerifier;
use crate::refusal::RefusalKind;
use crate::report::Section;

const NOW: UnixSeconds = UnixSeconds(1_769_781_900);

/// A node on record and the gateway's view of it.
struct Site {
    key: SigningKey,
    public: AgentKey,
    tag: Tag,
    job_ids: JobIds,
    now: UnixSeconds,
    node: NodeId,
    cluster: ClusterId,
    path: String,
}

fn agent_key(seed: u8) -> (SigningKey, AgentKey) {
    let key = SigningKey::from([seed; 32]);
    let public: [u8; 32] = VerificationKey::from(&key).into();
    (key, AgentKey::from_bytes(public).unwrap())
}

impl Site {
    fn of(hb: &Heartbeat) -> Self {
        let (key, public) = agent_key(3);
        let tag = Tag::derive("chain-1", "wasm1contract", &hb.cluster_id, &hb.node_id, 7);
        Self {
            key,
            public,
            tag,
            job_ids: JobIds::Plain,
            now: hb.timestamp.seconds(),
            node: hb.node_id.clone(),
            cluster: hb.cluster_id.clone(),
            path: hb.node_id.to_string(),
        }
    }

    fn sign(&self, hb: &Heartbeat) -> HeartbeatRequest {
        let what = SignHeartbeat {
            heartbeat: hb,
            nonce: [5; 16],
            tag: &self.tag,
            job_ids: self.job_ids,
            settled_section: None,
        };
        sign_heartbeat(&what, |m| Ok::<_, Infallible>(self.key.sign(m).into()))
            .unwrap()
            .request
    }

    fn verify(&self, request: &HeartbeatRequest) -> Result<VerifiedHeartbeat, Refusal> {
        let against = Admission {
            path_node_id: &self.path,
            certificate_node_id: &self.node,
            certificate_cluster_id: &self.cluster,
            registered: Some(Registered {
                key: &self.public,
                tag: &self.tag,
                job_ids: self.job_ids,
            }),
            now: self.now,
        };
        verify_heartbeat(request, &against, &ZebraVerifier)
    }

    /// Signs arbitrary payload text around the report of `hb`, as a broken or hostile agent would.
    fn sign_text(&self, text: String, hb: &Heartbeat) -> HeartbeatRequest {
        let mut request = self.sign(hb);
        request.heartbeat = RawValue::from_string(text).unwrap();
        let message = auth_message(
            self.path.as_str(),
            self.now.0,
            &request.auth.nonce,
            &payload_hash(&request.heartbeat),
        );
        let signature: [u8; 64] = self.key.sign(message.as_bytes()).into();
        request.auth.signature = STANDARD.encode(signature);
        request
    }

    /// Signs a changed report beside the payload of `hb`.
    fn sign_report(&self, hb: &Heartbeat, change: impl FnOnce(&mut Report)) -> HeartbeatRequest {
        let mut request = self.sign(hb);
        let bytes = STANDARD.decode(request.auth.report.as_deref().unwrap()).unwrap();
        let mut report = Report::decode(&bytes).unwrap();
        change(&mut report);
        let signature: [u8; 64] = self.key.sign(&report.message(&self.tag)).into();
        request.auth.report = Some(STANDARD.encode(report.encode()));
        request.auth.report_signature = Some(STANDARD.encode(signature));
        request
    }
}

fn example() -> (Heartbeat, Site) {
    let raw = serde_json::value::to_raw_value(&healthy()).unwrap();
    let hb = Heartbeat::parse(&raw).unwrap();
    let site = Site::of(&hb);
    assert_eq!(site.now, NOW);
    (hb, site)
}

fn refused(site: &Site, request: &HeartbeatRequest) -> (Code, String, RefusalKind) {
    let r = site.verify(request).unwrap_err();
    assert!(r.message.ends_with(r.code.remedy()), "{r}");
    (r.code, r.field.unwrap_or_default(), r.kind)
}

#[test]
fn a_signed_heartbeat_passes_and_gives_what_goes_on_chain() {
    let (hb, site) = example();
    let request = site.sign(&hb);
    // Over the wire and back, the payload's bytes must not change.
    let body = serde_json::to_vec(&request).unwrap();
    let verified = site.verify(&HeartbeatRequest::parse(&body).unwrap()).unwrap();
    assert_eq!(verified.heartbeat, hb);
    assert_eq!(
        (verified.report.time, verified.report.sequence),
        (1_769_781_900, 145_823)
    );
    assert_eq!(verified.report.body.cores_available, 32);
    assert!(verified.report.body.has_jobs && verified.report.covers(&verified.section));
    assert_eq!(
        Section::decode(&verified.section).unwrap().jobs,
        ["slurm-12345", "slurm-12346"]
    );
    assert_eq!(verified.nonce, [5; 16]);
    let message = verified.report.message(&site.tag);
    assert!(ZebraVerifier.verify(&message, &verified.report_signature, site.public.as_bytes()));
}

#[test]
fn the_section_is_left_out_once_the_chain_holds_it() {
    let (hb, site) = example();
    let digest = site.verify(&site.sign(&hb)).unwrap().report.section_digest;
    let what = SignHeartbeat {
        heartbeat: &hb,
        nonce: [5; 16],
        tag: &site.tag,
        job_ids: site.job_ids,
        settled_section: Some(digest),
    };
    let signed = sign_heartbeat(&what, |m| Ok::<_, Infallible>(site.key.sign(m).into())).unwrap();
    assert_eq!(signed.request.auth.section, None);
    assert!(site.verify(&signed.request).is_ok());
}

#[test]
fn job_ids_leave_the_payload_as_the_cluster_says() {
    let (hb, mut site) = example();
    for (privacy, first, count) in [(JobIds::Hashed, Some(16), 2), (JobIds::None, None, 0)] {
        site.job_ids = privacy;
        let section = Section::decode(&site.verify(&site.sign(&hb)).unwrap().section).unwrap();
        assert_eq!((section.jobs.len(), section.jobs_total), (count, 2));
        assert_eq!(section.jobs.first().map(String::len), first);
    }
    // An agent that publishes more than the cluster allows is refused.
    let request = Site {
        job_ids: JobIds::Plain,
        ..Site::of(&hb)
    }
    .sign(&hb);
    let field = "auth.report.section_digest".to_owned();
    assert_eq!(
        refused(&site, &request),
        (Code::ReportMismatch, field, RefusalKind::Semantic)
    );
}

#[test]
fn payload_bytes_are_verified_as_sent_not_as_written_again() {
    let (hb, site) = example();
    let mut spaced = site.sign(&hb);
    spaced.heartbeat = RawValue::from_string(spaced.heartbeat.get().replacen(':', ": ", 1)).unwrap();
    assert_eq!(
        refused(&site, &spaced),
        (
            Code::SignatureInvalid,
            "auth.signature".into(),
            RefusalKind::Semantic
        )
    );
}

#[test]
fn wrong_key_wrong_signature_and_unknown_node_are_refused() {
    let (hb, site) = example();
    let other = Site {
        key: agent_key(4).0,
        ..Site::of(&hb)
    };
    assert_eq!(refused(&site, &other.sign(&hb)).0, Code::SignatureInvalid);

    let mut r = site.sign(&hb);
    r.auth.signature = STANDARD.encode([0; 64]);
    assert_eq!(refused(&site, &r).0, Code::SignatureInvalid);

    let mut r = site.sign(&hb);
    r.auth.report_signature = Some(STANDARD.encode([1; 64]));
    assert_eq!(refused(&site, &r).1, "auth.report_signature");

    let mut r = site.sign(&hb);
    r.auth.public_key = Some(agent_key(4).1.to_base64());
    assert_eq!(refused(&site, &r).0, Code::KeyMismatch);
    r.auth.public_key = Some("?".into());
    assert_eq!(refused(&site, &r).0, Code::KeyMismatch);
    r.auth.public_key = Some(site.public.to_base64());
    assert!(site.verify(&r).is_ok());

    // A report of an earlier epoch does not verify under the present tag.
    let tag = Tag::derive("chain-1", "wasm1contract", &hb.cluster_id, &hb.node_id, 6);
    let before = Site { tag, ..Site::of(&hb) };
    assert_eq!(refused(&site, &before.sign(&hb)).1, "auth.report_signature");

    let against = Admission {
        path_node_id: &site.path,
        certificate_node_id: &site.node,
        certificate_cluster_id: &site.cluster,
        registered: None,
        now: site.now,
    };
    let refusal = verify_heartbeat(&site.sign(&hb), &against, &ZebraVerifier).unwrap_err();
    assert_eq!(refusal.code, Code::UnknownNode);
}

#[test]
fn path_certificate_and_body_must_name_the_same_node() {
    let (hb, mut site) = example();
    let request = site.sign(&hb);

    let mut r = request.clone();
    r.auth.node_id = Some("node-other".into());
    assert_eq!(refused(&site, &r).1, "auth.node_id");
    r.auth.node_id = None;
    r.auth.timestamp = None;
    assert!(site.verify(&r).is_ok(), "both may be absent");

    site.path = "node-other".into();
    let refusal = site.verify(&request).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.heartbeat_status()),
        (Code::IdentityMismatch, 403)
    );
    site.node = "node-other".parse().unwrap();
    assert_eq!(refused(&site, &request).1, "node_id");

    let (_, mut site) = example();
    site.cluster = "other-cluster".parse().unwrap();
    assert_eq!(refused(&site, &request).0, Code::ClusterMismatch);
}

#[test]
fn clocks_six_minutes_behind_and_two_ahead_are_refused() {
    let (hb, mut site) = example();
    let request = site.sign(&hb);
    for (now, code) in [
        (NOW.plus(360), Some(Code::TimestampExpired)),
        (NOW.plus(301), Some(Code::TimestampExpired)),
        (NOW.plus(300), None),
        (NOW.minus(60), None),
        (NOW.minus(61), Some(Code::TimestampInFuture)),
        (NOW.minus(120), Some(Code::TimestampInFuture)),
    ] {
        site.now = now;
        assert_eq!(site.verify(&request).err().map(|r| r.code), code, "{now}");
    }
    let (_, site) = example();
    for wrong in [1_769_781_901, 1_769_781_899, -1, 0] {
        let mut r = request.clone();
        r.auth.timestamp = Some(wrong);
        assert_eq!(
            refused(&site, &r),
            (Code::InvalidField, "auth.timestamp".into(), RefusalKind::Semantic)
        );
    }
}

#[test]
fn broken_base64_and_lengths_are_malformed_and_say_where() {
    let (hb, site) = example();
    let good = site.sign(&hb);
    let short = STANDARD.encode([0; 12]);
    type Set = fn(&mut HeartbeatAuth, String);
    let fields: [(&str, Set, Code); 5] = [
        ("auth.signature", |a, s| a.signature = s, Code::Malformed),
        ("auth.nonce", |a, s| a.nonce = s, Code::NonceInvalid),
        ("auth.report", |a, s| a.report = Some(s), Code::Malformed),
        (
            "auth.report_signature",
            |a, s| a.report_signature = Some(s),
            Code::Malformed,
        ),
        ("auth.section", |a, s| a.section = Some(s), Code::Malformed),
    ];
    for (field, set, code) in fields {
        for bad in [
            "?",
            "a1b2c3d4e5f6g7h8=",
            short.as_str(),
            &STANDARD.encode(vec![0; 5000]),
        ] {
            if field == "auth.section" && bad == short {
                continue;
            }
            let mut r = good.clone();
            set(&mut r.auth, bad.to_owned());
            assert_eq!(
                refused(&site, &r),
                (code, field.into(), RefusalKind::Malformed),
                "{bad:.20}"
            );
        }
    }
    // The specification's own example nonces are 12 bytes: illustrations, refused as such.
    let mut r = good;
    r.auth.nonce = "a1b2c3d4e5f6g7h8".into();
    assert_eq!(site.verify(&r).unwrap_err().heartbeat_status(), 400);
}

#[test]
fn bodies_that_are_no_request_or_too_large_are_refused_unread() {
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"heartbeat": {}}"#,
        r#"{"heartbeat": {}, "auth": {"signature": 1, "nonce": ""}}"#,
    ] {
        let refusal = HeartbeatRequest::parse(body.as_bytes()).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.heartbeat_status()),
            (Code::Malformed, 400),
            "{body}"
        );
    }
    let refusal = HeartbeatRequest::parse(&vec![b' '; MAX_HEARTBEAT_BYTES + 1]).unwrap_err();
    assert_eq!(refusal.code, Code::BodyTooLarge);
}

#[test]
fn a_signed_payload_that_breaks_a_rule_is_refused_for_that_rule() {
    let (hb, site) = example();
    for (pointer, value, code) in [
        ("/sequence_number", Value::from(0), Code::InvalidSequence),
        (
            "/capacity/cpu_cores_available",
            Value::from(65),
            Code::InvalidCapacity,
        ),
        ("/health/status", Value::from("fine"), Code::InvalidHealth),
    ] {
        let mut v = healthy();
        *v.pointer_mut(pointer).unwrap() = value;
        let refusal = refused(&site, &site.sign_text(v.to_string(), &hb));
        assert_eq!((refusal.0, refusal.2), (code, RefusalKind::Semantic));
    }
}

#[test]
fn a_missing_report_is_named() {
    let (hb, site) = example();
    let mut r = site.sign(&hb);
    r.auth.report_signature = None;
    assert_eq!(refused(&site, &r).1, "auth.report_signature");
    r.auth.report = None;
    assert_eq!(
        refused(&site, &r),
        (Code::ReportMissing, "auth.report".into(), RefusalKind::Semantic)
    );
}

#[test]
fn a_report_that_says_something_else_is_refused_by_field() {
    let (hb, site) = example();
    type Change = fn(&mut Report);
    let changes: [(&str, Change); 13] = [
        ("time", |r| r.time += 1),
        ("sequence", |r| r.sequence += 1),
        ("status", |r| r.body.status = crate::node::HealthStatus::Degraded),
        ("has_jobs", |r| r.body.has_jobs = false),
        ("cores_available", |r| r.body.cores_available += 1),
        ("memory_gb_available", |r| r.body.memory_gb_available += 1),
        ("gpus_available", |r| r.body.gpus_available += 1),
        ("storage_gb_available", |r| r.body.storage_gb_available += 1),
        ("avg_cluster_latency_us", |r| r.body.avg_cluster_latency_us += 1),
        ("measurement_count", |r| r.body.measurement_count += 1),
        ("payload_hash", |r| r.payload_hash[31] ^= 1),
        ("section_digest", |r| r.section_digest[15] ^= 1),
        ("section_digest", |r| r.section_digest = [0; 16]),
    ];
    for (field, change) in changes {
        let request = site.sign_report(&hb, change);
        assert_eq!(
            refused(&site, &request),
            (
                Code::ReportMismatch,
                format!("auth.report.{field}"),
                RefusalKind::Semantic
            )
        );
    }
    let mut r = site.sign(&hb);
    r.auth.section = Some(STANDARD.encode(b"another"));
    assert_eq!(refused(&site, &r).1, "auth.section");
}

#[test]
fn figures_saturate_at_their_width() {
    let mut v = healthy();
    for field in ["cpu_cores", "memory_gb", "gpus", "storage_gb"] {
        v["capacity"][format!("{field}_total")] = 2_147_483_647.into();
        v["capacity"][format!("{field}_available")] = 2_000_000_000.into();
    }
    v["latency"]["avg_cluster_latency_us"] = i64::MAX.into();
    let hb = Heartbeat::parse(&serde_json::value::to_raw_value(&v).unwrap()).unwrap();
    let site = Site::of(&hb);
    let body = site.verify(&site.sign(&hb)).unwrap().report.body;
    assert_eq!((body.cores_available, body.gpus_available), (u16::MAX, u8::MAX));
    assert_eq!(
        (
            body.memory_gb_available,
            body.storage_gb_available,
            body.avg_cluster_latency_us
        ),
        (0x00ff_ffff, 0x00ff_ffff, 0x00ff_ffff)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_an_agent_signs_the_gateway_admits_and_the_contract_can_read(
        hb in any_heartbeat(),
        job_ids in prop::sample::select(vec![JobIds::Plain, JobIds::Hashed, JobIds::None]),
    ) {
        let site = Site { job_ids, ..Site::of(&hb) };
        let body = serde_json::to_vec(&site.sign(&hb)).unwrap();
        prop_assert!(body.len() <= MAX_HEARTBEAT_BYTES);
        let verified = site.verify(&HeartbeatRequest::parse(&body).unwrap()).unwrap();
        let section = Section::decode(&verified.section).unwrap();
        prop_assert_eq!(section.check_capacity(&verified.report.body), Ok(()));
    }
}
