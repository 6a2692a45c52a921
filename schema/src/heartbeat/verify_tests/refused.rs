//! What is refused, with its code and field.

use super::*;

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
    let fields: [(&str, Set, Code); 6] = [
        ("auth.signature", |a, s| a.signature = s, Code::Malformed),
        ("auth.public_key", |a, s| a.public_key = Some(s), Code::Malformed),
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
fn what_a_body_lacks_or_has_wrong_is_refused_by_field() {
    let (hb, site) = example();
    let request = site.sign(&hb);
    let auth = serde_json::to_value(&request.auth).unwrap();
    for (name, code) in [("signature", Code::Malformed), ("nonce", Code::NonceInvalid)] {
        let mut without = auth.clone();
        without.as_object_mut().unwrap().remove(name);
        let mut null = auth.clone();
        null[name] = Value::Null;
        let mut empty = auth.clone();
        empty[name] = "".into();
        for bad in [without, null, empty] {
            let refusal = HeartbeatRequest::parse(body(&request, &bad).as_bytes()).unwrap_err();
            assert_eq!((refusal.code, refusal.heartbeat_status()), (code, 400), "{bad}");
            assert_eq!(refusal.field, Some(format!("auth.{name}")), "{bad}");
            assert!(refusal.message.contains("is absent"), "{refusal}");
        }
    }
    let mut typed = auth;
    typed["section"] = 7.into();
    for (text, field) in [
        (r#"{"auth": {}}"#.to_owned(), "heartbeat"),
        (r#"{"heartbeat": {}}"#.to_owned(), "auth"),
        (r#"{"heartbeat": {}, "auth": null}"#.to_owned(), "auth"),
        (r#"{"heartbeat": {}, "auth": 7}"#.to_owned(), "auth"),
        (r#"{"heartbeat": {}, "auth": ["", ""]}"#.to_owned(), "auth"),
        (body(&request, &typed), "auth.section"),
        (
            body(&request, &serde_json::to_value(&request.auth).unwrap()).replacen(": null", ": [7]", 1),
            "acknowledgements",
        ),
    ] {
        let refusal = HeartbeatRequest::parse(text.as_bytes()).unwrap_err();
        assert_eq!((refusal.code, refusal.heartbeat_status()), (Code::Malformed, 400));
        assert_eq!(refusal.field.as_deref(), Some(field), "{refusal}");
    }
}

#[test]
fn a_report_that_cannot_be_read_is_malformed_and_says_why() {
    let (hb, site) = example();
    let good = site.sign(&hb);
    let bytes = STANDARD.decode(good.auth.report.as_deref().unwrap()).unwrap();
    for (flags, code, says) in [
        (0, Code::InvalidHealth, "status"),
        (6, Code::InvalidHealth, "status"),
        (7, Code::InvalidHealth, "status"),
        (0x11, Code::Malformed, "must be 0"),
        (0x81, Code::Malformed, "must be 0"),
    ] {
        let mut report = bytes.clone();
        report[8] = flags;
        let mut r = good.clone();
        r.auth.report = Some(STANDARD.encode(report));
        let refusal = site.verify(&r).unwrap_err();
        assert_eq!((refusal.code, refusal.heartbeat_status()), (code, 400), "{flags}");
        assert_eq!(refusal.field.as_deref(), Some("auth.report"));
        assert!(refusal.message.contains(says), "{refusal}");
    }
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
