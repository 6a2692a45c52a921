//! What passes, and what it gives.

use proptest::prelude::*;

use super::*;
use crate::heartbeat::{HealthStatus, Jobs, Latency, LatencyMeasurement, Percent, running};
use crate::node::lifecycle::{Context, ReportView, apply_report};
use crate::node::{HotRecord, NodeState};
use crate::registry::Params;

#[test]
fn a_signed_heartbeat_passes_and_gives_what_goes_on_chain() {
    let (hb, site) = example();
    let request = site.sign(&hb);
    // Over the wire and back, the payload's bytes must not change.
    let body = serde_json::to_vec(&request).unwrap();
    let verified = site.verify(&HeartbeatRequest::parse(&body).unwrap()).unwrap();
    assert_eq!(*verified.heartbeat, hb);
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
fn a_payload_that_was_read_with_its_request_is_not_read_again_however_often_it_is_verified() {
    let (hb, site) = example();
    let sent = serde_json::to_vec(&site.sign(&hb)).unwrap();
    let request = HeartbeatRequest::parse(&sent).unwrap();
    let [once, again] = [(), ()].map(|()| site.verify(&request).unwrap().heartbeat);
    assert!(Arc::ptr_eq(&once, &again));
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
    let text = spaced.heartbeat.get().replacen(':', ": ", 1);
    spaced.heartbeat = RawValue::from_string(text).unwrap().into();
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
    let hb = Heartbeat::parse(&serde_json::value::to_raw_value(&v).unwrap().into()).unwrap();
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

#[test]
fn null_and_the_empty_text_are_absent_in_auth() {
    let (hb, site) = example();
    let request = site.sign(&hb);
    for absent in [Value::Null, Value::from("")] {
        let mut auth = serde_json::to_value(&request.auth).unwrap();
        for name in ["node_id", "public_key", "timestamp", "section"] {
            auth[name] = absent.clone();
        }
        let sent = body(&request, &auth);
        let read = HeartbeatRequest::parse(sent.as_bytes()).unwrap();
        let said = &read.auth;
        assert_eq!(
            (&said.node_id, &said.public_key, &said.section),
            (&None, &None, &None)
        );
        assert!(said.timestamp.is_none() && read.acknowledgements.is_empty());
        assert!(site.verify(&read).is_ok());

        for name in ["report", "report_signature"] {
            let mut auth = auth.clone();
            auth[name] = absent.clone();
            let sent = body(&request, &auth);
            let read = HeartbeatRequest::parse(sent.as_bytes()).unwrap();
            assert_eq!(
                refused(&site, &read),
                (Code::ReportMissing, format!("auth.{name}"), RefusalKind::Semantic)
            );
        }
    }
}

#[test]
fn probes_that_were_lost_weigh_nothing() {
    let (mut hb, site) = example();
    let probe = |latency_us: Option<u64>, lost: u8| LatencyMeasurement {
        target_node_id: "node-2".parse().unwrap(),
        latency_us,
        packet_loss_percent: Percent::try_from(lost).unwrap(),
        measured_at: hb.timestamp.clone(),
    };
    let measurements = vec![probe(Some(100), 0), probe(None, 100), probe(Some(300), 33)];
    for (average, said) in [(Some(200), (200, 2)), (None, (0, 0))] {
        hb.latency = Some(Latency {
            measurements: measurements.clone(),
            avg_cluster_latency_us: average,
            ..Latency::default()
        });
        let verified = site.verify(&site.sign(&hb)).unwrap();
        let is = verified.report.body;
        assert_eq!((is.avg_cluster_latency_us, is.measurement_count), said);
        assert_eq!(Section::decode(&verified.section).unwrap().measurements.len(), 3);
        // Where there is a mean the lost ones may be counted with it.
        let all = site.sign_report(&hb, |r| r.body.measurement_count = 3);
        let more = site.sign_report(&hb, |r| r.body.measurement_count = 4);
        if average.is_some() {
            assert_eq!(site.verify(&all).unwrap().report.body.measurement_count, 3);
        } else {
            assert_eq!(refused(&site, &all).1, "auth.report.measurement_count");
        }
        assert_eq!(refused(&site, &more).1, "auth.report.measurement_count");
    }
}

#[test]
fn jobs_run_by_their_count_else_by_their_names_else_it_is_not_known() {
    let (mut hb, site) = example();
    let jobs = |running_count, ids: &[&str]| {
        Some(Jobs {
            running_count,
            active_job_ids: ids.iter().map(|id| id.parse().unwrap()).collect(),
            ..Jobs::default()
        })
    };
    for (jobs, is) in [
        (jobs(Some(2), &[]), Some(true)),
        (jobs(Some(0), &[]), Some(false)),
        (jobs(Some(0), &["slurm-1"]), Some(false)),
        (jobs(None, &["slurm-1"]), Some(true)),
        (jobs(None, &[]), None),
        (None, None),
    ] {
        hb.jobs = jobs;
        assert_eq!(running(&hb), is);
        // What an agent of ours signs never calls a node drained of which nothing is known.
        let signed = site.verify(&site.sign(&hb)).unwrap();
        assert_eq!(signed.report.body.has_jobs, is != Some(false));
        // Another one's may say either then, and nothing but the truth where it is known.
        for said in [true, false] {
            let verdict = site.verify(&site.sign_report(&hb, |r| r.body.has_jobs = said));
            let expected = is
                .filter(|is| *is != said)
                .map(|_| "auth.report.has_jobs".to_owned());
            assert_eq!(verdict.err().and_then(|r| r.field), expected, "{is:?} {said}");
        }
    }
}

#[test]
fn a_draining_node_of_whose_jobs_nothing_is_known_is_not_drained() {
    let (mut hb, site) = example();
    hb.health.status = HealthStatus::Draining;
    let params = Params::default();
    let ctx = Context {
        now: site.now,
        params: &params,
        cluster_active: true,
    };
    let stood = HotRecord {
        last_heartbeat: u32::try_from(site.now.0).unwrap(),
        state: NodeState::Draining,
        ..HotRecord::pending()
    };
    let none = Jobs {
        running_count: Some(0),
        ..Jobs::default()
    };
    for (jobs, state) in [
        (None, NodeState::Draining),
        (Some(Jobs::default()), NodeState::Draining),
        (Some(none), NodeState::Drained),
    ] {
        hb.jobs = jobs;
        let report = site.verify(&site.sign(&hb)).unwrap().report;
        let view = ReportView {
            time: report.time,
            sequence: report.sequence,
            body: report.body,
        };
        assert_eq!(apply_report(stood, &view, &ctx).unwrap().record.state, state);
    }
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
