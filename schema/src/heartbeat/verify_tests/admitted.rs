//! What passes, and what it gives.

use proptest::prelude::*;

use super::*;

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
